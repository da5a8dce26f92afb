"""The papers' figures and claims, made again from public data by one command.

:func:`expost.reproduce.leblond.reproduce` is ``expost reproduce leblond``,
:func:`expost.reproduce.redberg_wang.reproduce` is ``expost reproduce redberg-wang``,
:func:`expost.reproduce.d53.reproduce` is ``expost reproduce d5.3``.
"""
