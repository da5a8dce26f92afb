"""What each command of the program does, from a table to a folder.

``profile`` releases one model and profiles it; ``epsilon`` releases nothing and recommends an ε.
Each command takes a request of :mod:`expost.jobs.requests`, reads its files, reports
where every choice came from, and writes files that are whole or absent.
"""
