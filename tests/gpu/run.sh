#!/usr/bin/env bash
# The GPU tests in groups, for a machine that is lent by the minute: tests/gpu/run.sh FOLDER
# What only asks for right values runs side by side; what times has the GPU alone afterwards. Logs go to FOLDER.
set -u
cd "$(dirname "$0")/../.."
out=${1:?a folder for the logs}
python=${PYTHON:-python3}
mkdir -p "$out"
failed=0

group() {
    local name=$1
    shift
    KFORGE_CACHE=$(mktemp -d) "$python" -m pytest -v --tb=short -p no:cacheprovider --durations=5 "$@" >"$out/$name.log" 2>&1
    local rc=$?
    printf '%-12s rc=%s  %s\n' "$name" "$rc" "$(tail -n 1 "$out/$name.log")"
    return $rc
}

# at most six at a time: each forks processes that make contexts and compile
group kernel tests/gpu/test_kernel_gpu.py tests/gpu/test_task.py & pids=($!)
group engine tests/gpu/test_engine.py & pids+=($!)
group memory tests/gpu/test_memory_gpu.py & pids+=($!)
group judge tests/gpu/test_environment_gpu.py -k right_candidates & pids+=($!)
group examples tests/gpu/test_examples.py & pids+=($!)
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
group worker tests/gpu/test_worker_gpu.py tests/gpu/test_emulator.py tests/gpu/test_workers_gpu.py || failed=1
group timing tests/gpu/test_ceilings.py tests/gpu/test_timing_gpu.py || failed=1
group profiling tests/gpu/test_profiling.py || failed=1
group verdicts tests/gpu/test_environment_gpu.py -k 'not right_candidates' || failed=1
group redteam tests/gpu/test_redteam_gpu.py || failed=1
grep -hE '^(FAILED|ERROR)' "$out"/*.log
exit $failed
