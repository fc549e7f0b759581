"""Inject what Pods that target spot need to run there: policy kind ``SpotPlacement``.

`findings` words what stays wrong, `no_pool` explains why no pool admits a Pod.
"""
