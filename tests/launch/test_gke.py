"""launch/gke: the manifest that is submitted, and the image it names."""

import functools
import json
import math
import re

import pytest
import yaml

from tests.launch.scripts import LAUNCH, ROOT, add_recorder, calls, printed, run
from tupe_jax.utils.errors import USER_ERROR_EXIT_CODE

COMMAND = ("--", "pretrain", "--config=tupe_r", "--workdir=gs://runs/it's $HOME")


def options(target, *more):
    return ("--name=tupe-r", f"--target={target}", "--image=r/i:1", *more)


@functools.cache
def manifest(target, *more):
    text = "\n".join(printed("gke/submit.sh", "--dry-run", *options(target, *more), *COMMAND))
    assert not re.search(r"\$(?!HOME)", text), "something was not filled in"
    return yaml.safe_load(text)


def environment_of(job):
    """The variables of a container: a value, or the label of the pod that has it."""
    (container,) = job["template"]["spec"]["containers"]
    return {
        variable["name"]: variable.get("value") or variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container["env"]
    }


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
    variables = environment_of(job_of(jobset))
    assert variables["TUPE_RETRIES"] == "4"


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
        "containers", "volumes", "shareProcessNamespace",
    }  # fmt: skip
    assert set(job["template"]["spec"]["containers"][0]) == {
        "name", "image", "args", "env", "resources", "ports", "volumeMounts",
    }  # fmt: skip


def test_all_exit_codes_except_0_and_2_restart_all_pods():
    jobset = manifest("v5e:16x16")
    job = job_of(jobset)
    refused, anything_else = jobset["spec"]["failurePolicy"][
        "rules"
    ]  # the first that fits is applied
    for rule in (refused, anything_else):
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
    assert refused["action"] == "FailJobSet"
    # This is the reason of a Job that failed by its podFailurePolicy; any other has another.
    assert refused["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert set(anything_else) == {"name", "action"}
    assert anything_else["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    (wrong_arguments,) = job["podFailurePolicy"]["rules"]
    assert wrong_arguments["action"] == "FailJob"
    container = job["template"]["spec"]["containers"][0]["name"]
    assert wrong_arguments["onExitCodes"] == {
        "containerName": container,
        "operator": "In",
        "values": [USER_ERROR_EXIT_CODE],
    }
    # A pod alone must not begin again: it would wait for the others, who wait for the old one.
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] >= 60


def test_sigterm_reaches_tupe_before_it_handles_it():
    """Process 1 of a container ignores a signal that it does not handle yet."""
    assert job_of(manifest("v5e:4x4"))["template"]["spec"]["shareProcessNamespace"] is True


@pytest.fixture
def pod(tmp_path):
    """Runs the entry point as a pod of the JobSet; `tupe` ends with this code when it checks."""

    def start(checked=0, **position):
        add_recorder(
            tmp_path, "tupe", then=f"[[ $1 != check-progress ]] || exit {checked}; exit 76"
        )
        labels = {"TUPE_SLICE": "0", "JOB_COMPLETION_INDEX": "0", "TUPE_TOKEN": "uid"}
        labels |= {"TUPE_RESTART": "0", "TUPE_PAUSE": "0"} | position
        variables = environment_of(job_of(manifest("v5e:4x4"))) | labels
        arguments = COMMAND[1:]
        done = run("gke/entrypoint.sh", *arguments, path=tmp_path, **variables)
        return done.returncode, calls(tmp_path, "tupe")

    return start


CHECK = "check-progress gs://runs/it's $HOME --job=uid --retries=3"
PRETRAIN = " ".join(COMMAND[1:])


def test_the_first_pod_checks_the_progress_for_all(pod):
    assert pod() == (76, [CHECK, PRETRAIN])


@pytest.mark.parametrize("position", [{"TUPE_SLICE": "1"}, {"JOB_COMPLETION_INDEX": "1"}])
def test_the_others_do_not(pod, position):
    assert pod(checked=2, **position) == (76, [PRETRAIN])


def test_without_progress_the_run_ends(pod):
    assert pod(checked=2) == (2, [CHECK])


@pytest.mark.parametrize("code", [1, 76])
def test_unknown_progress_restarts_all_pods_but_not_forever(pod, code):
    assert pod(checked=code) == (code, [CHECK] * 4)
    assert pod(checked=code, TUPE_RESTART="100")[0] == 2


def test_the_token_is_the_same_in_all_pods_and_after_restarts():
    variables = environment_of(job_of(manifest("v5e:4x4")))
    assert variables["TUPE_TOKEN"] == "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"
    # Not a part of TUPE_TOKEN, by which the starts of a run are counted.
    assert variables["TUPE_RESTART"] == "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
    assert variables["TUPE_SLICE"] == "metadata.labels['jobset.sigs.k8s.io/job-index']"


def test_the_command_arrives_as_it_was_given():
    (container,) = job_of(manifest("v5e:4x4"))["template"]["spec"]["containers"]
    assert container["args"] == list(COMMAND[1:])
    assert container["image"] == "r/i:1"


def test_without_a_bucket_nothing_is_mounted():
    pod = job_of(manifest("v5e:4x4", "--service-account=writer"))["template"]
    assert pod["metadata"]["annotations"] == {}
    assert pod["spec"]["volumes"] == pod["spec"]["containers"][0]["volumeMounts"] == []
    assert pod["spec"]["serviceAccountName"] == "writer"
    assert "hostNetwork" not in pod["spec"]


def test_a_bucket_is_mounted_by_a_sidecar_with_limits():
    pod = job_of(manifest("v5e:4x4", "--bucket=runs"))["template"]
    annotations = pod["metadata"]["annotations"]
    assert annotations["gke-gcsfuse/volumes"] == "true"
    assert annotations.keys() >= {
        "gke-gcsfuse/cpu-limit", "gke-gcsfuse/memory-limit", "gke-gcsfuse/ephemeral-storage-limit",
    }  # fmt: skip
    (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
    (volume,) = pod["spec"]["volumes"]
    assert mount == {"name": volume["name"], "mountPath": "/mnt/runs"}
    assert volume["csi"]["driver"] == "gcsfuse.csi.storage.gke.io"
    attributes = volume["csi"]["volumeAttributes"]
    assert attributes["bucketName"] == "runs"
    options = attributes["mountOptions"].split(",")
    assert {"implicit-dirs", "write:enable-streaming-writes:false"} <= set(options)
    # The cache fits into the sidecar's storage.
    (cache,) = [
        int(o.rpartition(":")[2]) for o in options if o.startswith("file-cache:max-size-mb")
    ]
    assert cache < 1024 * int(annotations["gke-gcsfuse/ephemeral-storage-limit"].removesuffix("Gi"))


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


def dockerfile():
    return (LAUNCH / "gke/Dockerfile").read_text()


def test_the_image_holds_the_package_its_versions_and_the_entry_point():
    lines = dockerfile().splitlines()
    copied = {source for line in lines if line.startswith("COPY") for source in line.split()[1:-1]}
    assert copied == {
        "pyproject.toml", "README.md", "LICENSE", "constraints.txt", "tupe_jax", "configs",
        "launch/gke/entrypoint.sh",
    }  # fmt: skip
    assert all((ROOT / source).exists() for source in copied)
    (entry,) = [line for line in lines if line.startswith("ENTRYPOINT")]
    assert json.loads(entry.removeprefix("ENTRYPOINT ")) == ["/tupe/entrypoint.sh"]
    assert "--constraint=constraints.txt" in dockerfile()
    # Docker sends only these files to the build.
    ignored, *rest = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#"
    ]
    assert ignored == "*"
    assert {line[1:] for line in rest if line[0] == "!"} == copied
