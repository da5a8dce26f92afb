"""LeBlond et al. (2023): the figures and claims, from UCI Adult."""
