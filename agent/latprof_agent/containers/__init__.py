"""Which container, pod and workload a control group is of, and their names."""
