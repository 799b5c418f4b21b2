"""Render launch/gke/jobset.yaml. Needs only the standard library; called by `submit.sh`."""

import argparse
import json
import math
import re
from pathlib import Path
from string import Template
from typing import NoReturn

# GKE's name of each kind of TPU, and the dimensions of its topologies. Slices of several machines
# have machines with four chips (ct5lp-hightpu-4t, ct5p-hightpu-4t, ct6e-standard-4t, ...).
ACCELERATORS = {
    "v4": ("tpu-v4-podslice", 3),
    "v5e": ("tpu-v5-lite-podslice", 2),
    "v5p": ("tpu-v5p-slice", 3),
    "v6e": ("tpu-v6e-slice", 2),
    "tpu7x": ("tpu7x", 3),
}
CHIPS_PER_MACHINE = 4
TEMPLATE = Path(__file__).with_name("jobset.yaml")
# The sidecar that mounts a bucket; by default it requests 0.25 CPU and 256 MiB, too little for a
# reader. The file cache, which holds prepared data after the first epoch, is ephemeral storage.
SIDECAR = {
    "gke-gcsfuse/volumes": "true",
    "gke-gcsfuse/cpu-limit": "8",
    "gke-gcsfuse/memory-limit": "8Gi",
    "gke-gcsfuse/ephemeral-storage-limit": "60Gi",
}
# Streaming writes would leave metrics.jsonl unfinished until it is closed. On TPU machines gcsfuse
# keeps metadata forever: a process would not see what another one wrote.
MOUNT_OPTIONS = (
    "implicit-dirs",
    "write:enable-streaming-writes:false",
    "metadata-cache:ttl-secs:60",
    "metadata-cache:negative-ttl-secs:0",
    "file-cache:max-size-mb:51200",
    "file-cache:cache-file-for-range-read:true",
)
LONGEST_NAME = 40  # Kubernetes allows 63 for a pod, whose name adds the slice and the host.


class OneLineParser(argparse.ArgumentParser):
    """Prints errors without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; --help lists the options\n")


def main() -> None:
    parser = OneLineParser(
        prog="launch/gke/submit.sh",
        usage="%(prog)s [--dry-run] [OPTIONS] -- ARGUMENTS OF TUPE",
        allow_abbrev=False,
    )
    parser.add_argument("--name", required=True, help="name of the JobSet")
    parser.add_argument("--target", required=True, help="kind:topology, such as v5e:16x16")
    parser.add_argument("--image", required=True, help="image built from launch/gke/Dockerfile")
    parser.add_argument("--bucket", help="mount this bucket in every pod, as /mnt/BUCKET")
    parser.add_argument("--slices", type=int, default=1, help="number of such slices (default 1)")
    parser.add_argument("--spot", action="store_true", help="use Spot machines")
    parser.add_argument("--reservation", help="use the machines of this reservation")
    parser.add_argument("--namespace", default="default")
    parser.add_argument(
        "--service-account", default="default", help="account that may use the bucket"
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=3,
        help="restarts in a row without a newer checkpoint (default 3)",
    )
    parser.add_argument("arguments", nargs="+", help="arguments of tupe, after --")
    try:
        print(render(parser.parse_args()), end="")
    except ValueError as error:
        parser.error(str(error))


def render(settings: argparse.Namespace) -> str:
    """The manifest as text."""
    accelerator, hosts, chips_per_host = machines(settings.target)
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", settings.name):
        raise ValueError(
            f"--name={settings.name}: lower-case letters, digits and -, a letter first"
        )
    if len(settings.name) > LONGEST_NAME:
        raise ValueError(f"--name={settings.name}: longer than {LONGEST_NAME} characters")
    if settings.bucket and not re.fullmatch(r"[a-z0-9][-_.a-z0-9]+", settings.bucket):
        raise ValueError(f"--bucket={settings.bucket}: the name alone, without gs://")
    if settings.slices < 1:
        raise ValueError(f"--slices={settings.slices} must be at least 1")
    if settings.slices > 1 and hosts == 1:
        raise ValueError(
            f"--slices={settings.slices} of {settings.target}, which is one machine: GKE connects "
            "slices of several machines only"
        )
    if settings.max_restarts < 0:
        raise ValueError(f"--max-restarts={settings.max_restarts} must not be negative")
    if settings.spot and settings.reservation:
        raise ValueError("--spot and --reservation exclude each other")
    node_selector = {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": settings.target.partition(":")[2],
    }
    if settings.spot:
        node_selector["cloud.google.com/gke-spot"] = "true"
    if settings.reservation:
        node_selector["cloud.google.com/reservation-name"] = settings.reservation
    mount = {"name": "bucket", "mountPath": f"/mnt/{settings.bucket}"}
    attributes = {"bucketName": settings.bucket, "mountOptions": ",".join(MOUNT_OPTIONS)}
    driver = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}
    volume = {"name": "bucket", "csi": driver}
    # JSON is YAML, and quotes the user's values.
    return Template(TEMPLATE.read_text()).substitute(
        name=settings.name,
        namespace=json.dumps(settings.namespace),
        max_restarts=settings.max_restarts,
        slices=settings.slices,
        hosts=hosts,
        service_account=json.dumps(settings.service_account),
        node_selector=json.dumps(node_selector),
        image=json.dumps(settings.image),
        arguments=json.dumps(settings.arguments),
        workdir=json.dumps(workdir_of(settings.arguments)),
        chips_per_host=chips_per_host,
        annotations=json.dumps(SIDECAR if settings.bucket else {}),
        volume_mounts=json.dumps([mount] if settings.bucket else []),
        volumes=json.dumps([volume] if settings.bucket else []),
    )


def workdir_of(arguments: list[str]) -> str:
    """The work directory of a `tupe pretrain` command."""
    if arguments[0] != "pretrain":
        raise ValueError(f"{arguments[0]} is not pretrain, the command that runs on slices")
    given = [word.partition("=")[2] for word in arguments if word.startswith("--workdir=")]
    if not given:
        raise ValueError("pretrain needs --workdir=gs://BUCKET/RUN")
    return given[-1]


def machines(target: str) -> tuple[str, int, int]:
    """GKE's accelerator, machines per slice and chips per machine of `v5e:16x16`."""
    kind, _, topology = target.partition(":")
    if kind not in ACCELERATORS:
        raise ValueError(f"--target={target}: {kind!r} is none of {', '.join(ACCELERATORS)}")
    accelerator, dimensions = ACCELERATORS[kind]
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", topology):
        raise ValueError(f"--target={target}: a topology is a product such as 16x16 or 4x4x4")
    sides = [int(side) for side in topology.split("x")]
    if len(sides) != dimensions:
        raise ValueError(f"--target={target}: {kind} has {dimensions} dimensions, not {len(sides)}")
    chips = math.prod(sides)
    if chips == 1 and dimensions == 2:
        return accelerator, 1, 1
    if chips % CHIPS_PER_MACHINE:
        raise ValueError(f"--target={target}: {chips} chips do not fill machines of four")
    return accelerator, chips // CHIPS_PER_MACHINE, CHIPS_PER_MACHINE


if __name__ == "__main__":
    main()
