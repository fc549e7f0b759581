"""Place Pods that target spot on spot nodes: policy kind ``SpotPlacement``.

`findings` builds the violations. `no_pool` explains why no pool admits a Pod. `floor` applies the on-demand floor.
"""
