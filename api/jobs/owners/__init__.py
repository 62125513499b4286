"""The kinds that are started and stopped as a whole, beside Jobs: JobSet and others, each a row of one table.

Modules, in reading order:

    row          what Berth knows of a kind
    paths        values within a JSON object, by path
    conditions   how a kind tells its end by conditions
    owner        an object of such a kind as a frozen value
    jobset       the row of JobSet
    trainjob     the row of TrainJob
    kubeflow     the rows of PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob and MPIJob
    ray_scaling  how many workers Ray's autoscaler has made of an elastic RayJob or RayService
    ray_pod_sets, ray    the rows of KubeRay's kinds
    spark_conf, spark    the row of SparkApplication
    appwrapper   the row of AppWrapper
    external     rows that the configuration writes
    table        all rows
    rules        what an owner may ask of queues and topologies, and what may change
    composing    the pod sets of an owner's Workload, and whether a Workload still describes the owner
    patches      the patches that start and stop an owner

A kind is a row and no class: what a row cannot say is a small function beside it, in the module of its
family. Objects are read as plain JSON, because their kinds have hundreds of fields and all must be preserved.
"""
