#!/usr/bin/env bash
# The long forms of the tests that look for rare things: a thousand kills of a training, one at each call from its last step to its exit,
# three of a sweep of 24 runs, each signal at two hundred moments, every change of a model in mid-epoch, two million samples of a loader
# with workers, ranks and restarts, the memory of 200 epochs of 2,000 image files, fifty losses of one of several processes, a hundred
# preemptions by SLURM, a sweep of an array of SLURM, launchers inside launchers, replays of two hundred random steps, a hundred changes,
# poisoned samples and flipped bits each, all tests of the fake accelerator
# and of the program under sanitizers, the commands of the first pages from the build on, all of Kindling as a subfolder of a project built with the other
# compiler, models and tables of public packages, hours of fuzzing.
#   ./scripts/soak.sh [KILLS (1000)] [SECONDS FOR EACH FUZZER (3600)]
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$kindling_root"
./scripts/test.sh
OMP_NUM_THREADS=1 build/asan/bin/kindling_fake_tests --gtest_filter='-*/fake0:*TouchesNoDeviceMemoryFromTheHost*'
KINDLING_SOAK_KILLS=${1:-1000} OMP_NUM_THREADS=1 build/ci/bin/kindling_program_tests --gtest_filter='*KilledRun*'
KINDLING_SOAK_CALLS=1 OMP_NUM_THREADS=1 build/ci/bin/kindling_program_tests --gtest_filter='KilledAtACall.*'
KINDLING_SOAK_SIGNALS=200 OMP_NUM_THREADS=1 build/ci/bin/kindling_program_tests --gtest_filter='*SignalFromExecToExit*:FitProcesses.EndAsDocumented*'
KINDLING_SOAK_SWEEP_RUNS=24 OMP_NUM_THREADS=1 build/ci/bin/kindling_program_tests --gtest_filter='SweepProgram.Killed*'
KINDLING_SOAK_LABELS=200 OMP_NUM_THREADS=1 build/ci/bin/kindling_tests --gtest_filter='CountedLabels.*'
KINDLING_SOAK_RANKS=50 OMP_NUM_THREADS=1 build/ci/bin/kindling_tests --gtest_filter='DataParallel.ValidatesAndStopsEarly*'
KINDLING_SOAK_CHANGES=1 OMP_NUM_THREADS=1 build/ci/bin/kindling_tests --gtest_filter='MidEpochChanges.*'
KINDLING_SOAK_SAMPLES=83333 OMP_NUM_THREADS=1 build/ci/bin/kindling_tests --gtest_filter='LoaderGuarantee.*'
KINDLING_SOAK_FILES=2000 OMP_NUM_THREADS=1 build/ci/bin/kindling_tests --gtest_filter='LongFit.*Workers*'
KINDLING_SOAK_REPLAYS=100 OMP_NUM_THREADS=1 build/ci/bin/kindling_tests --gtest_filter='ReplayedChanges.*:PoisonedSamples.*'
KINDLING_SOAK_REPLAYS=200 OMP_NUM_THREADS=1 build/ci/bin/kindling_program_tests --gtest_filter='*ReplayedRun.*'
KINDLING_SOAK_FLIPS=100 OMP_NUM_THREADS=1 build/ci/bin/kindling_tests --gtest_filter='GradientRecheckOfFaults.*'
KINDLING_SOAK_LOSSES=50 OMP_NUM_THREADS=1 build/ci/bin/kindling_program_tests --gtest_filter='LostProcess*'
bash tests/cli/run/preemptions.sh "$PWD/build/ci/bin/kindling" "$PWD/scripts/clusters" 100
bash tests/cli/run/array_sweep.sh "$PWD/build/ci/bin/kindling" "$PWD/scripts/clusters" 24
bash tests/cli/run/nested_launchers.sh "$PWD/build/ci/bin/kindling" "$PWD/scripts/clusters" "$PWD/.deps/venv/bin/python"
libtorch=$(sed -n 's|^LIBTORCH:PATH=||p' build/ci/CMakeCache.txt)
bash tests/docs/first_commands.sh "$PWD" "$libtorch" - "$PWD"/docs/start/inside_your_program.md \
  "$PWD"/build/ci/tests/docs/{readme_1,start_first_run_0,start_install_0,start_install_1,start_inside_your_program_0}.sh
cmake -DSOURCE="$PWD/build/ci/tests/consumers/as_subfolder_source" -DWORK="$PWD/build/as_subfolder" \
  -DCOMPILER="$(command -v clang++ || command -v g++)" -DRUN="custom_model/custom_model;fit;-c;project/custom_model/config.toml" \
  -DOPTIONS="-DKINDLING_SOURCE=$PWD;-DLIBTORCH=$libtorch;-DKINDLING_BUILD_PROGRAM=ON;-DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG" \
  -DEXPECT="best val acc (0.9|1.0)" -P tests/consumers/run_consumer.cmake
# Python's models and tables, with packages that nothing else needs (3 GB).
models=$deps/venv-models
"$(python_with_venv)" -m venv "$models"
pip_install_into "$models" pip-models "torch==$torch_version+cpu" || pip_install_into "$models" pip-models "torch==$torch_version"
pip_install_into "$models" pip-models -r benchmarks/model_sweep/requirements.txt pandas scikit-learn
pip_install_into "$models" pip-models --no-deps -r benchmarks/model_sweep/requirements_of_operators.txt
"$models/bin/python" benchmarks/model_sweep/sweep.py build/ci/bin/kindling
"$models/bin/python" benchmarks/table_sweep.py build/ci/bin/kindling
OMP_NUM_THREADS=1 build/asan/bin/kindling_program_tests
./scripts/fuzz.sh "${2:-3600}"
