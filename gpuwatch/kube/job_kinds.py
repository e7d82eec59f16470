"""The kinds of jobs that gpuwatch tells apart, as data: what marks a pod of each, and where its name and replica are written.

To add a kind, add one entry here and one fixture in ``tests/kube/fixtures``. Entries are asked in this order, so a kind that is built on
another one (KServe on LeaderWorkerSet, a pipeline on Argo) stands before it. Source: the labels that each operator puts on its pods.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.device.readings import Struct
from gpuwatch.kube import job_details as details
from gpuwatch.kube.objects import JobRef, Pod

JOB = ("batch", "Job")
REPLICA_SET = ("apps", "ReplicaSet")
STATEFUL_SET = ("apps", "StatefulSet")
POD = ("", "Pod")

_TRAINING = "training.kubeflow.org/"
_BATCH = "batch.kubernetes.io/"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_COMPLETION_INDEX = _BATCH + "job-completion-index"


class JobKind(Struct, frozen=True, kw_only=True):
    """One kind of job.

    A pod is of this kind when one of ``owners`` controls it, or when it bears one of ``marks`` and is controlled by nobody, by one of
    ``owners``, or by one of ``builders``. Marks are pairs of label and value, an empty value standing for any. All other fields are
    keys of labels (or, where the pod has no such label, of annotations); the first that is not empty counts.
    """

    kind: str
    owners: tuple[tuple[str, str], ...] = ()
    """(group, kind) of objects that are this job."""
    builders: tuple[tuple[str, str], ...] = ()
    """(group, kind) of objects that this job makes in order to make pods."""
    marks: tuple[tuple[str, str], ...] = ()
    name: tuple[str, ...] = ()
    """Without any: the owner's name, else the pod's."""
    replica_type: tuple[str, ...] = ()
    replica_index: tuple[str, ...] = ()
    refine: Callable[[Pod, JobRef], JobRef] | None = None
    """Corrects what plain labels do not say."""
    becomes: tuple[str, ...] = ()
    """Kinds that ``refine`` may make of it."""


def _training(kind: str, controller: str, own: str = "") -> JobKind:
    """A job of the training operator. ``own``: the beginning of the labels that its own operator set before it joined that one."""
    former = (("controller-name", f"{own}-operator"), (f"{own}-job-name", ""), (f"{own}-replica-type", "")) if own else ()
    return JobKind(
        kind=kind,
        owners=(("kubeflow.org", kind),),
        marks=((_TRAINING + "operator-name", controller), *former),
        name=(_TRAINING + "job-name", "job-name", *((f"{own}-job-name",) if own else ())),
        replica_type=(_TRAINING + "replica-type", "replica-type", *((f"{own}-replica-type",) if own else ())),
        replica_index=(_TRAINING + "replica-index", "replica-index", *((f"{own}-replica-index",) if own else ())),
        refine=details.refine_replica_by_name,
    )


JOB_KINDS = (
    _training("TFJob", "tfjob-controller", "tf"),
    _training("PyTorchJob", "pytorchjob-controller", "pytorch"),
    _training("XGBoostJob", "xgboostjob-controller"),
    _training("PaddleJob", "paddlejob-controller"),
    _training("JAXJob", "jaxjob-controller"),
    JobKind(
        kind="MPIJob",
        owners=(("kubeflow.org", "MPIJob"),),
        builders=(JOB,),
        marks=((_TRAINING + "operator-name", "mpijob-controller"), (_TRAINING + "operator-name", "mpi-operator"), ("mpi-job-name", "")),
        name=(_TRAINING + "job-name", "mpi-job-name"),
        # job-role comes second: under the training operator it says "master" on the launcher.
        replica_type=(_TRAINING + "replica-type", _TRAINING + "job-role", "replica-type", "mpi-job-role"),
        replica_index=(_TRAINING + "replica-index", "replica-index"),
    ),
    JobKind(
        kind="KubeflowPipelineRun",
        builders=(("argoproj.io", "Workflow"),),
        marks=(("pipeline/runid", ""),),
        name=("pipeline/runid",),
        replica_type=("workflows.argoproj.io/node-name",),
        refine=details.refine_workflow_step,
    ),
    JobKind(
        kind="Workflow",
        owners=(("argoproj.io", "Workflow"),),
        marks=(("workflows.argoproj.io/workflow", ""),),
        name=("workflows.argoproj.io/workflow",),
        replica_type=("workflows.argoproj.io/node-name",),
        refine=details.refine_workflow_step,
    ),
    JobKind(
        kind="VolcanoJob",
        owners=(("batch.volcano.sh", "Job"),),
        marks=(("volcano.sh/job-name", ""),),
        name=("volcano.sh/job-name",),
        replica_type=("volcano.sh/task-spec",),
        replica_index=("volcano.sh/task-index",),
        refine=details.refine_volcano_index,
    ),
    JobKind(
        kind="InferenceService",
        builders=(REPLICA_SET, STATEFUL_SET),
        marks=(("serving.kserve.io/inferenceservice", ""),),
        name=("serving.kserve.io/inferenceservice",),
        replica_type=("component",),
    ),
    JobKind(
        kind="Notebook",
        builders=(STATEFUL_SET,),
        marks=(("notebook-name", ""),),
        name=("notebook-name",),
    ),
    JobKind(
        kind="RayCluster",
        owners=(("ray.io", "RayCluster"),),
        builders=(JOB,),  # the submitter of a RayJob
        marks=(("ray.io/originated-from-cr-name", ""), ("ray.io/cluster", "")),
        name=("ray.io/originated-from-cr-name", "ray.io/cluster"),
        replica_type=("ray.io/node-type",),
        refine=details.refine_ray,
        becomes=("RayJob", "RayService"),
    ),
    JobKind(
        kind="LeaderWorkerSet",
        builders=(STATEFUL_SET,),
        marks=((_LWS + "name", ""),),
        name=(_LWS + "name",),
        refine=details.refine_leader_worker,
    ),
    JobKind(
        kind="SparkApplication",
        owners=(("sparkoperator.k8s.io", "SparkApplication"),),
        builders=(POD,),
        marks=(("sparkoperator.k8s.io/app-name", ""),),
        name=("sparkoperator.k8s.io/app-name",),
        replica_type=("spark-role",),
        replica_index=("spark-exec-id",),
    ),
    JobKind(
        kind="Spark",
        builders=(POD, JOB),
        marks=(("spark-app-selector", ""),),
        name=("spark-app-name", "spark-app-selector"),
        replica_type=("spark-role",),
        replica_index=("spark-exec-id",),
    ),
    JobKind(
        kind="AirflowTask",
        marks=(("kubernetes_executor", "True"), ("kubernetes_pod_operator", "True"), ("airflow_version", "")),
        replica_index=("map_index", "try_number"),
        refine=details.refine_airflow_name,
    ),
    JobKind(
        kind="JobSet",
        builders=(JOB,),
        marks=((_JOBSET + "jobset-name", ""),),
        name=(_JOBSET + "jobset-name",),
        replica_type=(_JOBSET + "replicatedjob-name",),
        replica_index=(_COMPLETION_INDEX,),
        refine=details.refine_job_set,
        becomes=("TrainJob",),
    ),
    JobKind(
        kind="Job",
        owners=(JOB,),
        marks=((_BATCH + "job-name", ""),),
        name=(_BATCH + "job-name", "job-name"),
        replica_index=(_COMPLETION_INDEX,),
        refine=details.refine_cron_job,
        becomes=("CronJob",),
    ),
    JobKind(
        kind="StatefulSet",
        owners=(STATEFUL_SET,),
        replica_index=("apps.kubernetes.io/pod-index",),
        refine=details.refine_ordinal,
    ),
    JobKind(kind="ReplicaSet", owners=(REPLICA_SET,), refine=details.refine_deployment, becomes=("Deployment",)),
    JobKind(kind="DaemonSet", owners=(("apps", "DaemonSet"),)),
    JobKind(kind="StaticPod", owners=(("", "Node"),), refine=details.refine_static_pod),
    # From here on: pods that nobody controls and that no other label explains.
    JobKind(kind="Trial", marks=(("katib.kubeflow.org/trial", ""),), name=("katib.kubeflow.org/trial",)),
    JobKind(
        kind="PodGroup",
        marks=(("kueue.x-k8s.io/pod-group-name", ""),),  # not Volcano's annotation: it makes a group of one for any pod
        name=("kueue.x-k8s.io/pod-group-name",),
    ),
    JobKind(
        kind="Pod",
        owners=(POD,),
        marks=(("app.kubernetes.io/instance", ""),),
        name=("app.kubernetes.io/instance",),
    ),
)

KNOWN_KINDS = frozenset(kind for entry in JOB_KINDS for kind in (entry.kind, *entry.becomes))
