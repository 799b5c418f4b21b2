"""launch/gke: the manifest that is submitted, and the image it names."""

import functools
import json
import math
import re

import pytest
import yaml

from tests.launch.scripts import LAUNCH, ROOT, add_recorder, calls, printed, run
from tupe_jax.run.preemption import STOPPED_EXIT_CODE
from tupe_jax.utils.errors import RETRY_EXIT_CODE

COMMAND = ("--", "pretrain", "--config=tupe_r", "--workdir=/mnt/runs/it's $HOME")


def options(target, *more):
    return ("--name=tupe-r", f"--target={target}", "--image=r/i:1", "--bucket=runs", *more)


@functools.cache
def manifest(target, *more):
    text = "\n".join(printed("gke/submit.sh", "--dry-run", *options(target, *more), *COMMAND))
    assert not re.search(r"\$(?!HOME)", text), "something was not filled in"
    return yaml.safe_load(text)


def job_of(jobset):
    (replicated,) = jobset["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


@pytest.mark.parametrize(
    ("target", "accelerator", "hosts", "chips"),
    [
        ("v5e:1x1", "tpu-v5-lite-podslice", 1, 1),
        ("v5e:2x2", "tpu-v5-lite-podslice", 1, 4),
        ("v5e:16x16", "tpu-v5-lite-podslice", 64, 4),
        ("v5p:4x4x4", "tpu-v5p-slice", 16, 4),
        ("v6e:16x16", "tpu-v6e-slice", 64, 4),
        ("v4:2x2x2", "tpu-v4-podslice", 2, 4),
        ("tpu7x:2x2x1", "tpu7x", 1, 4),
    ],
)
def test_a_pod_for_every_machine_of_the_slice(target, accelerator, hosts, chips):
    job = job_of(manifest(target))
    topology = target.partition(":")[2]
    assert job["parallelism"] == job["completions"] == hosts
    assert job["completionMode"] == "Indexed"
    pod = job["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    (container,) = pod["containers"]
    asked = container["resources"]
    assert asked["requests"] == asked["limits"] == {"google.com/tpu": chips}
    assert hosts * chips == math.prod(int(side) for side in topology.split("x"))


def test_the_manifest_is_a_jobset_of_one_job_per_slice():
    jobset = manifest("v5p:4x4x4", "--slices=3", "--namespace=lab", "--max-restarts=4")
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert jobset["metadata"]["name"] == "tupe-r"
    assert jobset["metadata"]["namespace"] == "lab"
    # One node pool per Job: without it the pods of a slice may be spread over two.
    assert jobset["metadata"]["annotations"] == {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
    }
    assert jobset["spec"]["replicatedJobs"][0]["replicas"] == 3
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 4


def test_a_deleted_run_has_two_minutes_to_save():
    pod = job_of(manifest("v5e:2x2"))["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 120


def test_only_fields_that_the_interface_has():
    """Kubernetes drops unknown fields of a template without a word."""
    jobset = manifest("v5e:16x16")
    job = job_of(jobset)
    assert set(jobset) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(jobset["spec"]) == {"failurePolicy", "replicatedJobs"}
    assert set(jobset["spec"]["replicatedJobs"][0]) == {"name", "replicas", "template"}
    assert set(job) == {
        "parallelism", "completions", "completionMode", "backoffLimit", "podFailurePolicy",
        "template",
    }  # fmt: skip
    assert set(job["template"]["spec"]) == {
        "restartPolicy", "terminationGracePeriodSeconds", "serviceAccountName", "nodeSelector",
        "containers", "volumes",
    }  # fmt: skip
    assert set(job["template"]["spec"]["containers"][0]) == {
        "name", "image", "args", "resources", "ports", "volumeMounts",
    }  # fmt: skip


def test_preemptions_and_stops_restart_without_limit_and_failures_with_one():
    jobset = manifest("v5e:16x16")
    job = job_of(jobset)
    (rule,) = jobset["spec"]["failurePolicy"]["rules"]
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    # This is the reason of a Job that failed by its podFailurePolicy; any other has another.
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    disrupted, stopped = job["podFailurePolicy"]["rules"]
    assert disrupted["action"] == stopped["action"] == "FailJob"
    assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    container = job["template"]["spec"]["containers"][0]["name"]
    assert stopped["onExitCodes"] == {
        "containerName": container,
        "operator": "In",
        "values": [STOPPED_EXIT_CODE, RETRY_EXIT_CODE],
    }
    # A pod alone must not begin again: it would wait for the others, who wait for the old one.
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] >= 60


def test_the_command_arrives_as_it_was_given():
    (container,) = job_of(manifest("v5e:4x4"))["template"]["spec"]["containers"]
    assert container["args"] == list(COMMAND[1:])
    assert container["image"] == "r/i:1"


def test_the_bucket_is_mounted_at_the_work_directory():
    pod = job_of(manifest("v5e:4x4", "--service-account=writer"))["template"]
    assert pod["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
    (volume,) = pod["spec"]["volumes"]
    assert mount == {"name": volume["name"], "mountPath": "/mnt/runs"}
    assert volume["csi"]["driver"] == "gcsfuse.csi.storage.gke.io"
    assert volume["csi"]["volumeAttributes"]["bucketName"] == "runs"
    assert pod["spec"]["serviceAccountName"] == "writer"
    assert "hostNetwork" not in pod["spec"]


def test_spot_and_reserved_machines():
    spot = job_of(manifest("v5e:4x4", "--spot"))["template"]["spec"]["nodeSelector"]
    assert spot["cloud.google.com/gke-spot"] == "true"
    ours = job_of(manifest("v5e:4x4", "--reservation=r"))["template"]["spec"]["nodeSelector"]
    assert ours["cloud.google.com/reservation-name"] == "r"


def test_kubectl_gets_what_dry_run_prints(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    add_recorder(folder, "kubectl", then=f"cat >{folder}/manifest")
    done = run("gke/submit.sh", *options("v5e:4x4"), *COMMAND, path=folder)
    assert done.returncode == 0, done.stderr
    assert calls(folder, "kubectl") == ["apply --filename=-"]
    assert yaml.safe_load((folder / "manifest").read_text()) == manifest("v5e:4x4")


def test_the_image_holds_the_package_and_starts_tupe_itself():
    lines = (LAUNCH / "gke/Dockerfile").read_text().splitlines()
    copied = {source for line in lines if line.startswith("COPY") for source in line.split()[1:-1]}
    assert {"pyproject.toml", "README.md", "LICENSE", "tupe_jax", "configs"} == copied
    assert all((ROOT / source).exists() for source in copied)
    (entry,) = [line for line in lines if line.startswith("ENTRYPOINT")]
    assert json.loads(entry.removeprefix("ENTRYPOINT ")) == ["tupe"]
