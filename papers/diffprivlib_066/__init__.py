"""diffprivlib 0.6.6: what its private logistic regression reveals, and whether it keeps its ε."""
