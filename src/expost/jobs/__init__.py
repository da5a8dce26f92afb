"""What each command of the program does, from a table to a folder.

``profile`` releases one model and profiles it; ``epsilon`` releases nothing and says which ε is
worth using. Both take a :class:`~expost.jobs.table.TableJob`, read its table, say where every
choice came from, and write files that are whole or absent.
"""
