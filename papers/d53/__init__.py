"""MOSAICrOWN D5.3 (2020): identifiability, its formulas, its table and its figures."""
