"""Reproductions of the papers that expost is built on: evidence, not a part of the package.

``python -m papers --help`` lists them. :mod:`papers.leblond`, :mod:`papers.redberg_wang`,
:mod:`papers.d53` and :mod:`papers.lecture` have one source each, :mod:`papers.common` what they
share. The package never imports anything from here, and its wheel does not contain it.
"""
