"""Find workloads on spot that a reclaim would harm: policy kind ``SpotSuitability``.

`checks` judges one Pod or workload, `jobs` what ends a Job, `gangs` Pods that work only together.
"""
