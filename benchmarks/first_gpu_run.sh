#!/usr/bin/env bash
# The first run on a machine with CUDA. It has run on an NVIDIA H200, see docs/results/throughput/gpu.md.
#
#     benchmarks/first_gpu_run.sh [FOLDER [PYTEST'S ARGUMENTS FOR THE BENCHMARKS]]
#
# Needs this repository's development environment, and the assets of the benchmarks in the cache. First it compares the GPU's
# vectors, ranks and losses with the CPU's, to the tolerances in tests/test_devices.py (float32: a cosine of 0.99999, TF32:
# 0.9999, bfloat16: 0.999, losses: 0.1%), for at most 5 minutes. Then it times encoding, training and mining for at most
# 14 minutes. FOLDER, by default gpu-run, gets machine.txt, correctness.xml, benchmarks.json, kernels.json and summary.txt.
# Exit status: 0 if all is correct, 1 if a comparison (nothing is timed then) or a benchmark failed, 3 without CUDA.
set -uo pipefail
folder=$(realpath -m "${1:-gpu-run}")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "first_gpu_run: torch finds no CUDA device here; nothing was run." >&2
    exit 3
fi
mkdir -p "$folder"
{
    date --utc --iso-8601=seconds
    git describe --always --dirty
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv,noheader
    python -m pip freeze
} > "$folder/machine.txt"

mapfile -t tests < <(grep -rl 'mark\.gpu' tests --include 'test_*.py')
timeout 300 pytest "${tests[@]}" -m gpu --junitxml="$folder/correctness.xml" | tee "$folder/summary.txt"
if [[ ${PIPESTATUS[0]} -ne 0 ]]; then
    echo "first_gpu_run: the GPU differs from the CPU, see $folder/summary.txt; nothing was timed." >&2
    exit 1
fi
timeout 840 pytest "${@:-benchmarks}" -m gpu --benchmark-only --bench-findings="$folder/findings.jsonl" \
    --bench-profile="$folder/kernels.json" --benchmark-json="$folder/benchmarks.json" | tee -a "$folder/summary.txt"
if [[ ${PIPESTATUS[0]} -ne 0 ]]; then
    echo "first_gpu_run: a benchmark failed or the time is up, see $folder/summary.txt." >&2
    exit 1
fi
echo "first_gpu_run: compared and timed, see $folder"
