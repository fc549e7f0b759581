"""Find workloads on spot that a reclaim would harm: policy kind ``SpotSuitability``.

`checks` evaluates Pods and their workload, `jobs` the fields next to a pod template, and `gangs` the Pods that work
only together.
"""
