"""Attacks by name, in words that a person reads who has never heard of them."""

__all__ = ["is_white_box", "words"]

# What an attack compares, and with what; the names are those of expost.attacks.catalogue.
_WORDS = {
    "loss": "how well the model fits the row: the better, the more likely a member (Yeom 2018)",
    "class-loss": "the same, against rows of its own class",
    "population": "the fit, against rows that surely were not in the training",
    "shadow": "a classifier that learned on models of its own what members look like (Shokri 2017)",
    "lira-online": "the fit, against models trained with the row and without it (Carlini 2022)",
    "lira-offline": "the fit, against models trained without the row (Carlini 2022)",
    "rmia-online": "the fit, against other rows and models with and without the row (Zarifzadeh"
    " 2024)",
    "rmia-offline": "the fit, against other rows and models without the row (Zarifzadeh 2024)",
}
# Beginnings of the names of signals from inside of a model.
_INSIDE = {
    "gradient-norm": "how short the row's own gradient is in the model's parameters (Nasr 2019)",
    "gradient-inner-product": "how the row's own gradient lies to the parameters (Nasr 2019)",
    "gradient": "the row's own gradient in the model's parameters (Nasr 2019)",
    "snapshot": "the fit in several snapshots of the training, combined (Nasr 2019)",
}


def words(name: str) -> str:
    """What the attack looks at."""
    if name in _WORDS:
        return _WORDS[name]
    for beginning, meaning in _INSIDE.items():
        if name.startswith(beginning):
            return meaning
    return "a signal of its own, given beside the model's answers"


def is_white_box(name: str) -> bool:
    """Whether it needs more than the model's answers."""
    return name not in _WORDS
