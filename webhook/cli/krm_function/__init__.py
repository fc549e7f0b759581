"""The KRM function: the ResourceList that it reads and answers, its functionConfig and its results."""
