"""What plain labels do not say about a job: each function gets the pod and the job as far as it is known, and returns it corrected."""

from __future__ import annotations

import re

import msgspec

from gpuwatch.kube.objects import JobRef, Pod

_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"

_TRAINER_JOBS = frozenset({"node", "launcher", "dataset-initializer", "model-initializer"})
# A CronJob names its Jobs after the scheduled minute (or, before Kubernetes 1.21, second) since 1970. People name Jobs after calendar days.
_SCHEDULE = re.compile(r"-(?!(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01]))[0-9]{8,10}\Z")
_REPLICA = re.compile(r"([a-z]+)-([0-9]{1,9})")
_ORDINAL = re.compile(r"[0-9]{1,9}")


def refine_replica_by_name(pod: Pod, job: JobRef) -> JobRef:
    """Read the replica from the pod's name, ``<job>-<type>-<index>``, where no label tells it."""
    told = _REPLICA.fullmatch(pod.name.removeprefix(job.name + "-"))
    if job.replica_type or told is None or not pod.name.startswith(job.name + "-"):
        return job
    return msgspec.structs.replace(job, replica_type=told[1], replica_index=told[2])


def refine_workflow_step(pod: Pod, job: JobRef) -> JobRef:
    """Take the workflow's name off the step's: Argo calls a step ``<workflow>.<step>`` or ``<workflow>[0].<step>``."""
    workflow = pod.labels.get("workflows.argoproj.io/workflow", job.name)
    return msgspec.structs.replace(job, replica_type=job.replica_type.removeprefix(workflow).lstrip("."))


def refine_volcano_index(pod: Pod, job: JobRef) -> JobRef:
    """Read the index from the variables that Volcano set before it had a label for it."""
    told = (container.environment.get(name, "") for container in pod.containers for name in ("VC_TASK_INDEX", "VK_TASK_INDEX"))
    return msgspec.structs.replace(job, replica_index=job.replica_index or next(filter(None, told), ""))


def refine_ray(pod: Pod, job: JobRef) -> JobRef:
    """Name the object that made the cluster, and the group of a worker."""
    origin = pod.labels.get("ray.io/originated-from-crd", "")
    group = pod.labels.get("ray.io/group", "")
    return msgspec.structs.replace(
        job,
        kind=origin if origin in {"RayJob", "RayService"} else job.kind,
        replica_type=f"worker/{group}" if job.replica_type == "worker" and group else job.replica_type,
    )


def refine_leader_worker(pod: Pod, job: JobRef) -> JobRef:
    """Tell leaders (worker 0 of each group) from workers; the index is ``<group>/<worker>``."""
    group, worker = pod.labels.get(_LWS + "group-index", ""), pod.labels.get(_LWS + "worker-index", "")
    role = {"": "", "0": "leader"}.get(worker, "worker")
    return msgspec.structs.replace(job, replica_type=role, replica_index="/".join(filter(None, (group, worker))))


def refine_airflow_name(pod: Pod, job: JobRef) -> JobRef:
    """Name the task ``<dag>/<task>``, by annotations where there are: Airflow cuts long names in labels and adds a hash."""
    told = (pod.annotations.get(key) or pod.labels.get(key, "") for key in ("dag_id", "task_id"))
    return msgspec.structs.replace(job, name="/".join(filter(None, told)) or job.name)


def refine_job_set(pod: Pod, job: JobRef) -> JobRef:
    """Tell a TrainJob by the names that Trainer's runtimes use, and which of several equal Jobs the pod is in.

    Trainer puts no label of its own on pods. Its JobSet has the TrainJob's name, its Jobs have fixed names, and their container is called
    like the Job, or ``node``. All of it together is taken for a TrainJob; the name is right in any case.
    """
    names = {container.name for container in pod.containers}
    is_trainer = job.replica_type in _TRAINER_JOBS and not names.isdisjoint({"node", job.replica_type})
    job_index = pod.labels.get(_JOBSET + "job-index", "")
    several = pod.labels.get(_JOBSET + "replicatedjob-replicas", "1") != "1"
    indices = (job_index, job.replica_index) if several or not job.replica_index else (job.replica_index,)
    return msgspec.structs.replace(job, kind="TrainJob" if is_trainer else job.kind, replica_index="/".join(filter(None, indices)))


def refine_cron_job(pod: Pod, job: JobRef) -> JobRef:
    """Name the CronJob instead of its Job of this hour, and read the completion index from the environment where no label has it."""
    told = (container.environment.get("JOB_COMPLETION_INDEX", "") for container in pod.containers)
    index = job.replica_index or next(filter(None, told), "")
    schedule = _SCHEDULE.search(job.name)
    if schedule is None or schedule.start() == 0:
        return msgspec.structs.replace(job, replica_index=index)
    return msgspec.structs.replace(job, kind="CronJob", name=job.name[: schedule.start()], replica_index=index)


def refine_ordinal(pod: Pod, job: JobRef) -> JobRef:
    """Read the index from the pod's name, ``<set>-<index>``: Kubernetes before 1.28 has no label for it."""
    ordinal = pod.name.removeprefix(job.name + "-")
    return job if job.replica_index or not _ORDINAL.fullmatch(ordinal) else msgspec.structs.replace(job, replica_index=ordinal)


def refine_deployment(pod: Pod, job: JobRef) -> JobRef:
    """Name the Deployment: its ReplicaSets end in the hash that is also a label of their pods."""
    suffix = "-" + pod.labels.get("pod-template-hash", "")
    if len(suffix) == 1 or len(suffix) >= len(job.name) or not job.name.endswith(suffix):
        return job
    return msgspec.structs.replace(job, kind="Deployment", name=job.name.removesuffix(suffix))


def refine_static_pod(pod: Pod, job: JobRef) -> JobRef:
    """Name the pod of the manifest: the kubelet shows it with the node's name behind."""
    node = f"-{pod.owner.name}" if pod.owner else ""
    return msgspec.structs.replace(job, name=pod.name.removesuffix(node) or pod.name)
