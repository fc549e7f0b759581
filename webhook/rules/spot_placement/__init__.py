"""Place Pods that target spot on spot nodes: policy kind ``SpotPlacement``.

`findings` builds the violations. `floor` applies the on-demand floor.
"""
