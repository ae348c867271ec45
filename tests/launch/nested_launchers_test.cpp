#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "launch/launched.h"
#include "launch/parent_processes.h"
#include "launch/variable_map.h"
#include "support/scratch.h"

// Environments and parents as real launchers make them, seen by running them: Open MPI 4.1.4 and 5.0.11,
// MPICH 4.0.2 and 5.0.2, SLURM 22.05.8, torchrun 2.13.0 and 2.15.0.
namespace kindling {
namespace {

// A process, or one of its parents.
struct TestProcess {
  std::vector<std::string> command{};
  VariableMap variables{};
};

// The processes from the one that trains up to the first one of all.
std::optional<LaunchEnvironment> launched_in(const std::vector<TestProcess>& line) {
  ParentProcesses parents;
  for (std::size_t i = 1; i < line.size(); ++i) parents.push_back({line[i].command, line[i].variables});
  const VariableMap& variables = line.front().variables;
  return launch_environment(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      parents);
}

// "launcher rank/size at address"
std::string world_of(const std::vector<TestProcess>& line) {
  const auto at = launched_in(line);
  if (!at) return "alone";
  return at->launcher + " " + std::to_string(at->rank) + "/" + std::to_string(at->size) + " at " +
         at->master_address;
}

VariableMap torchrun(int rank, int size, const std::string& id, int local_size = 0) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(local_size == 0 ? rank : rank % local_size)},
          {"LOCAL_WORLD_SIZE", std::to_string(local_size == 0 ? size : local_size)},
          {"GROUP_WORLD_SIZE", std::to_string(local_size == 0 ? 1 : size / local_size)},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "33541"},
          {"TORCHELASTIC_RUN_ID", id},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

VariableMap open_mpi(int rank, int size, const std::string& job = "164102145") {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(size)},
          {"OMPI_NUM_APP_CTX", "1"},
          {"PMIX_NAMESPACE", job},
          {"PMIX_RANK", std::to_string(rank)}};
}

VariableMap mpich(int rank, int size) {
  return {{"PMI_RANK", std::to_string(rank)},        {"PMI_SIZE", std::to_string(size)},
          {"PMI_FD", std::to_string(6 + 2 * rank)},  {"HYDI_CONTROL_FD", "7"},
          {"MPI_LOCALRANKID", std::to_string(rank)}, {"MPI_LOCALNRANKS", std::to_string(size)}};
}

std::string ranks_up_to(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + std::to_string(i);
  return text;
}

VariableMap step(int rank, int size, const std::string& id = "0") {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", id},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_LOCALID", std::to_string(rank)},
          {"SLURM_NODEID", "0"},
          {"SLURM_NTASKS", std::to_string(size)},
          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
          {"SLURM_STEP_TASKS_PER_NODE", std::to_string(size)},
          {"SLURM_TASKS_PER_NODE", std::to_string(size)},
          {"SLURM_GTIDS", ranks_up_to(size)},
          {"SLURM_STEP_NODELIST", "vm"},
          {"SLURM_JOB_NODELIST", "vm"}};
}

const VariableMap kBatchShell{
    {"ENVIRONMENT", "BATCH"},      {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"},
    {"SLURM_LOCALID", "0"},        {"SLURM_NODEID", "0"}, {"SLURM_NTASKS", "2"},
    {"SLURM_TASKS_PER_NODE", "2"}, {"SLURM_GTIDS", "0"},  {"SLURM_JOB_NODELIST", "vm"}};

const TestProcess kShell{{"bash"}};
const TestProcess kInit{{"/sbin/init"}};
const std::vector<std::string> kTorchrun{"/usr/bin/python3", "/usr/bin/torchrun", "--standalone"};
const std::vector<std::string> kMpirun{"mpirun.openmpi", "-np", "2", "kindling", "fit"};
const std::vector<std::string> kPrterun{"/opt/ompi5/bin/prterun", "-np", "2", "kindling", "fit"};
const std::vector<std::string> kMpiexec{"mpiexec.hydra", "-n", "2", "kindling", "fit"};

std::vector<std::string> hydra_proxy(const std::string& port) {
  return {"/usr/bin/hydra_pmi_proxy", "--control-port", "vm:" + port, "--rmk", "user", "--proxy-id", "0"};
}
std::vector<std::string> step_daemon(const std::string& step) { return {"slurmstepd: [" + step + "]   "}; }

TEST(NestedLaunchers, DecideWhereOneStartsAllRanks) {
  const auto a = torchrun(1, 2, "a");
  const auto b = open_mpi(1, 2);
  const auto c = mpich(1, 2);
  const auto s = step(1, 2);
  const std::vector<std::pair<std::vector<TestProcess>, std::string>> table{
      // one launcher, with a shell in between
      {{{{}, a}, {{"bash"}, a}, {kTorchrun}, kShell, kInit}, "torchrun 1/2 at localhost"},
      {{{{}, b}, {kMpirun}, kShell, kInit}, "Open MPI 1/2 at 127.0.0.1"},
      {{{{}, c}, {hydra_proxy("1")}, {kMpiexec}, kInit}, "MPICH 1/2 at 127.0.0.1"},
      {{{{}, s}, {step_daemon("7.0")}, kInit}, "SLURM 1/2 at vm"},
      {{{{}, s + VariableMap{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "13"}}},
        {step_daemon("7.0")},
        kInit},
       "SLURM 1/2 at vm"},
      {{{{},
         s +
             VariableMap{
                 {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}, {"SLURM_MPI_TYPE", "pmi2"}}},
        {step_daemon("7.0")}},
       "SLURM 1/2 at vm"},
      // a launcher that starts one process inside of one that starts several
      {{{{}, a + open_mpi(0, 1)}, {kMpirun, a}, {kTorchrun}, kInit}, "torchrun 1/2 at localhost"},
      {{{{}, a + step(0, 1)}, {step_daemon("7.0")}, kInit}, "torchrun 1/2 at localhost"},
      {{{{}, c + open_mpi(0, 1)}, {kMpirun, c}, {hydra_proxy("1")}, {kMpiexec}}, "MPICH 1/2 at 127.0.0.1"},
      {{{{}, b + mpich(0, 1)}, {hydra_proxy("1"), b}, {kMpiexec, b}, {kMpirun}}, "Open MPI 1/2 at 127.0.0.1"},
      {{{{}, s + open_mpi(0, 1)}, {kMpirun, s}, {step_daemon("7.0")}}, "SLURM 1/2 at vm"},
      {{{{}, b + step(0, 1)}, {step_daemon("7.0")}, kInit}, "Open MPI 1/2 at 127.0.0.1"},
      // the other way round
      {{{{}, c + step(0, 1)}, {hydra_proxy("1"), step(0, 1)}, {step_daemon("7.0")}},
       "MPICH 1/2 at 127.0.0.1"},
      {{{{}, b + step(0, 1)}, {kMpirun, step(0, 1)}, {step_daemon("7.0")}}, "Open MPI 1/2 at 127.0.0.1"},
      {{{{}, b + kBatchShell}, {kMpirun, kBatchShell}, {{"bash"}, kBatchShell}, {step_daemon("7.batch")}},
       "Open MPI 1/2 at 127.0.0.1"},
      // a torchrun on each of two machines, started by srun or mpirun
      {{{{}, torchrun(3, 4, "a", 2) + s}, {kTorchrun, s}, {step_daemon("7.0")}}, "torchrun 3/4 at localhost"},
      {{{{}, torchrun(3, 4, "a", 2) + b}, {kTorchrun, b}, {kMpirun}}, "torchrun 3/4 at localhost"},
      // the daemons of MPI on two machines are the tasks of a step
      {{{{}, b + VariableMap{{"OMPI_COMM_WORLD_SIZE", "4"}} + s + VariableMap{{"MASTER_ADDR", "n1"}}},
        {{"/usr/bin/orted"}, s},
        {step_daemon("7.0")}},
       "Open MPI 1/4 at n1"},
      {{{{}, c + VariableMap{{"PMI_SIZE", "4"}, {"MASTER_ADDR", "n1"}} + s},
        {hydra_proxy("1"), s},
        {step_daemon("7.0")}},
       "MPICH 1/4 at n1"},
  };
  for (std::size_t i = 0; i < table.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(world_of(table[i].first), table[i].second);
  }
}

TEST(NestedLaunchers, AreRefusedWhereEachProcessStartsOthers) {
  struct Row {
    std::vector<TestProcess> line;
    std::string found, remedy;
  };
  const auto a = torchrun(0, 1, "a");
  const auto a2 = torchrun(1, 2, "a");
  const auto b = open_mpi(1, 2);
  const auto c = mpich(1, 2);
  const auto s = step(1, 2);
  const std::string more = "--nnodes=2 and the same --rdzv-backend=c10d --rdzv-endpoint=HOST:29400";
  const std::vector<Row> table{
      {{{{}, a + b}, {kMpirun, a}, {kTorchrun}},
       "Open MPI (rank 1 of 2) runs inside torchrun (rank 0 of 1)",
       "mpirun -np 2 PROGRAM"},
      {{{{}, a2 + b}, {kMpirun, a2}, {kTorchrun}},
       "Open MPI (rank 1 of 2) runs inside torchrun (rank 1 of 2)",
       "mpirun -np 4 PROGRAM"},
      // On two machines; only the parents tell that torchrun is outside.
      {{{{}, torchrun(1, 2, "a", 1) + b}, {kMpirun, torchrun(1, 2, "a", 1)}, {kTorchrun}},
       "Open MPI (rank 1 of 2) runs inside torchrun (rank 1 of 2)",
       "mpirun -np 4 PROGRAM"},
      {{{{}, b + a}, {kTorchrun, b}, {kMpirun}},
       "torchrun (rank 0 of 1) runs inside Open MPI (rank 1 of 2)",
       "mpirun -np 2 PROGRAM, or give each torchrun " + more},
      {{{{}, b + a2}, {kTorchrun, b}, {kMpirun}},
       "torchrun (rank 1 of 2) runs inside Open MPI (rank 1 of 2)",
       "mpirun -np 4 PROGRAM, or give each torchrun " + more},
      {{{{}, c + b}, {kMpirun, c}, {hydra_proxy("1")}, {kMpiexec}},
       "Open MPI (rank 1 of 2) runs inside MPICH (rank 1 of 2)",
       "mpiexec -n 4 PROGRAM"},
      {{{{}, b + c}, {hydra_proxy("1"), b}, {kMpiexec, b}, {kMpirun}},
       "MPICH (rank 1 of 2) runs inside Open MPI (rank 1 of 2)",
       "mpirun -np 4 PROGRAM"},
      {{{{}, s + a}, {kTorchrun, s}, {step_daemon("7.0")}},
       "torchrun (rank 0 of 1) runs inside SLURM (rank 1 of 2)",
       "srun --ntasks=2 PROGRAM, or give each torchrun " + more},
      {{{{}, a + s}, {step_daemon("7.0")}},
       "SLURM (rank 1 of 2) runs inside torchrun (rank 0 of 1)",
       "srun --ntasks=2 PROGRAM"},
      {{{{}, s + b}, {kMpirun, s}, {step_daemon("7.0")}},
       "Open MPI (rank 1 of 2) runs inside SLURM (rank 1 of 2)",
       "srun --ntasks=4 PROGRAM"},
      {{{{}, s + c}, {hydra_proxy("1"), s}, {kMpiexec, s}, {step_daemon("7.0")}},
       "MPICH (rank 1 of 2) runs inside SLURM (rank 1 of 2)",
       "srun --ntasks=4 PROGRAM"},
      {{{{}, b + s}, {step_daemon("7.0")}},
       "SLURM (rank 1 of 2) runs inside Open MPI (rank 1 of 2)",
       "mpirun -np 4 PROGRAM"},
      // Both have the same numbers, but not as with srun --mpi=pmi2, which sets no MPI_LOCALNRANKS.
      {{{{}, c + s}, {step_daemon("7.0")}},
       "SLURM (rank 1 of 2) runs inside MPICH (rank 1 of 2)",
       "mpiexec -n 4 PROGRAM"},
      {{{{}, c + s + VariableMap{{"SLURM_MPI_TYPE", "pmi2"}}}, {step_daemon("7.0")}},
       "SLURM (rank 1 of 2) runs inside MPICH (rank 1 of 2)",
       "mpiexec -n 4 PROGRAM"},
      // twice the same launcher, whose variables hide those of the outer one
      {{{{}, open_mpi(0, 2, "prterun-vm-9@1")},
        {kPrterun, open_mpi(1, 2, "prterun-vm-8@1")},
        {{"bash"}, open_mpi(1, 2, "prterun-vm-8@1")},
        {kPrterun}},
       "Open MPI (rank 0 of 2) runs inside Open MPI (rank 1 of 2)",
       "mpirun -np 4 PROGRAM"},
      {{{{}, torchrun(0, 2, "b")}, {kTorchrun, a2}, {kTorchrun}},
       "torchrun (rank 0 of 2) runs inside torchrun (rank 1 of 2)",
       "torchrun --standalone --no-python --nproc-per-node=4 PROGRAM"},
      {{{{}, mpich(0, 2)}, {hydra_proxy("2"), c}, {kMpiexec, c}, {hydra_proxy("1")}, {kMpiexec}},
       "MPICH (rank 0 of 2) runs inside MPICH (rank 1 of 2)",
       "mpiexec -n 4 PROGRAM"},
      // without parents
      {{{{}, a + b}}, "torchrun (rank 0 of 1) runs inside Open MPI (rank 1 of 2)", "mpirun -np 2 PROGRAM"},
      {{{{}, b + c}}, "Open MPI (rank 1 of 2) runs inside MPICH (rank 1 of 2)", "mpiexec -n 4 PROGRAM"},
      {{{{}, b + s}}, "Open MPI (rank 1 of 2) runs inside SLURM (rank 1 of 2)", "srun --ntasks=4 PROGRAM"},
  };
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Row& row = table[i];
    const std::string text = error_text<ConfigError>([&] { launched_in(row.line); });
    SCOPED_TRACE(std::to_string(i) + ": " + text);
    EXPECT_TRUE(text.starts_with("launchers of this process: " + row.found + ", so each process of "));
    EXPECT_NE(text.find("expected: one launcher that starts all ranks"), std::string::npos);
    EXPECT_NE(text.find("start all ranks with one of them: " + row.remedy), std::string::npos);
  }
}

TEST(NestedLaunchers, CanBeSeparatedByUnsettingTheOuterOne) {
  const std::string text = error_text<ConfigError>([] {
    launched_in({{{}, open_mpi(1, 2) + torchrun(0, 1, "a")}, {kTorchrun, open_mpi(1, 2)}, {kMpirun}});
  });
  EXPECT_NE(text.find("unset OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE to train separately"),
            std::string::npos)
      << text;
  EXPECT_EQ(world_of({{{}, torchrun(0, 1, "a")}, {kTorchrun, open_mpi(1, 2)}, {kMpirun}}),
            "torchrun 0/1 at localhost");
}

TEST(NestedLaunchers, AreNotWhatOneLauncherHasLeft) {
  const auto a = torchrun(1, 2, "a");
  // Some schedulers set both for the torchrun of each machine.
  for (const VariableMap& given :
       {VariableMap{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, VariableMap{{"RANK", "1"}, {"WORLD_SIZE", "2"}}})
    EXPECT_EQ(world_of({{{}, a}, {kTorchrun, given}, {{"bash"}, given}}), "torchrun 1/2 at localhost");
  EXPECT_EQ(world_of({{{}, a + VariableMap{{"OMPI_COMM_WORLD_SIZE", "1"}}}}), "torchrun 1/2 at localhost");
  // A wrapper that removes a variable, or that nobody may read.
  const auto b = open_mpi(1, 2), removed = b + VariableMap{{"PMIX_NAMESPACE", ""}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(world_of({{{}, removed}, {{"bash"}, b}, {kMpirun}}), "Open MPI 1/2 at 127.0.0.1");
  EXPECT_EQ(world_of({{{}, b}, {{"sudo"}}, {{"bash"}, b}, {kMpirun}}), "Open MPI 1/2 at 127.0.0.1");
  // The shell of `srun -n 4 --pty bash`.
  const auto shell = step(0, 4) + VariableMap{{"SLURM_PTY_PORT", "41003"}};
  EXPECT_EQ(world_of({{{}, shell + a}, {kTorchrun, shell}, {{"bash"}, shell}, {step_daemon("7.0")}}),
            "torchrun 1/2 at localhost");
  // The PMI of `srun --mpi=pmi2`, around mpirun.
  const auto task = step(1, 2) + VariableMap{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(world_of({{{}, task + open_mpi(0, 1)}, {kMpirun, task}, {step_daemon("7.0")}}),
            "SLURM 1/2 at vm");
}

TEST(NestedLaunchers, RefuseOtherProgramsInOneWorld) {
  struct Row {
    std::vector<TestProcess> line;
    std::string found, remedy;
  };
  const VariableMap two{{"OMPI_NUM_APP_CTX", "2"}};
  const auto b = open_mpi(1, 2);
  const auto c = mpich(1, 2);
  const std::vector<Row> table{
      {{{{}, b + two}, {{"mpirun", "-np", "1", "ocean", ":", "-np", "1", "kindling", "fit"}}},
       "Open MPI starts 2 programs as one world",
       "mpirun -np 2 PROGRAM"},
      {{{{}, c},
        {hydra_proxy("1")},
        {{"mpiexec.hydra", "-n", "1", "sleep", "30", ":", "-n", "1", "kindling", "fit"}}},
       "MPICH starts 2 programs as one world",
       "mpiexec -n 2 PROGRAM"},
  };
  for (const Row& row : table) {
    const std::string text = error_text<ConfigError>([&] { launched_in(row.line); });
    EXPECT_TRUE(text.starts_with("launchers of this process: " + row.found)) << text;
    EXPECT_NE(text.find("start it alone: " + row.remedy), std::string::npos) << text;
  }
  // One program with other options for each part.
  EXPECT_EQ(
      world_of({{{}, b + two}, {{"mpirun", "-np", "1", "kindling", "fit", ":", "-np", "1", "kindling"}}}),
      "Open MPI 1/2 at 127.0.0.1");
  EXPECT_EQ(world_of({{{}, c},
                      {hydra_proxy("1")},
                      {{"mpiexec", "-n", "1", "kindling", "fit", ":", "-n", "1", "kindling", "fit"}}}),
            "MPICH 1/2 at 127.0.0.1");
  // On another machine than mpirun, and with `mpirun --app FILE`, nothing shows the programs.
  EXPECT_EQ(world_of({{{}, b + two}}), "Open MPI 1/2 at 127.0.0.1");
  EXPECT_EQ(world_of({{{}, b + two}, {{"mpirun", "--app", "FILE"}}}), "Open MPI 1/2 at 127.0.0.1");
}

TEST(NestedLaunchers, DoNotIncludeTheStepThatABatchScriptWasSubmittedFrom) {
  // `srun -n 2 … sbatch -n 2`: the shell has the step's variables, except for SLURM_GTIDS.
  const VariableMap shell = step(0, 2) + kBatchShell;
  EXPECT_EQ(world_of({{{}, shell}}), "alone");
  EXPECT_EQ(world_of({{{}, shell}, {{"slurm_script"}, shell}, {step_daemon("8.batch")}}), "alone");
  EXPECT_EQ(world_of({{{}, shell + open_mpi(1, 2)}, {kMpirun, shell}, {step_daemon("8.batch")}}),
            "Open MPI 1/2 at 127.0.0.1");
  // With one task on each machine, SLURM_GTIDS is the same.
  const VariableMap spread{{"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
  EXPECT_EQ(world_of({{{}, shell + spread}, {step_daemon("8.batch")}}), "alone");
  EXPECT_EQ(world_of({{{}, step(0, 2) + spread + VariableMap{{"SLURM_GTIDS", "0"}}}, {step_daemon("7.0")}}),
            "SLURM 0/2 at vm");
}

TEST(NestedLaunchers, HaveAPortPerJobOfMpich) {
  const auto port = [](const char* control_port, int rank) {
    return launched_in({{{}, mpich(rank, 2)}, {hydra_proxy(control_port)}, {kMpiexec}})->master_port;
  };
  EXPECT_EQ(port("38867", 0), port("38867", 1));
  EXPECT_NE(port("38867", 0), port("38868", 0));
  EXPECT_GE(port("38867", 0), 15000);
  EXPECT_LT(port("38867", 0), 30000);
  // The namespace of an Open MPI inside differs from rank to rank.
  const auto inside = [&](const char* job) {
    const auto c = mpich(0, 2);
    return launched_in({{{}, c + open_mpi(0, 1, job)}, {kMpirun, c}, {hydra_proxy("38867")}})->master_port;
  };
  EXPECT_EQ(inside("52953089"), port("38867", 0));
  EXPECT_EQ(inside("52953090"), port("38867", 0));
  const std::string text = error_text<ConfigError>([] { launched_in({{{}, mpich(0, 2)}}); });
  EXPECT_NE(text.find("mpiexec -genv MASTER_PORT 29500 …"), std::string::npos) << text;
}

TEST(ParentProcesses, ShowWhatThisProcessDescendsFrom) {
  const ParentProcesses parents = parent_processes();
  ASSERT_FALSE(parents.empty());
  EXPECT_FALSE(program_name(parents.front()).empty());
  ASSERT_TRUE(parents.front().variables);
  EXPECT_FALSE(parents.front().variables->empty());
}

TEST(ParentProcesses, ShowWhichOneHasSetAVariable) {
  const char* const name = "KINDLING_TEST_OF_PARENTS";
  ASSERT_EQ(::setenv(name, "a", 1), 0);
  const auto process = [&](const char* value, std::int64_t id) {
    return ParentProcess{.command = {}, .variables = VariableMap{{name, value}}, .id = id};
  };
  const ParentProcess without{.command = {}, .variables = VariableMap{}, .id = 9};
  const ParentProcess hidden{.command = {}, .variables = {}, .id = 8};
  EXPECT_EQ(process_that_set(name, {process("a", 1), process("a", 2), without}), 9);
  EXPECT_EQ(process_that_set(name, {process("a", 1), process("b", 2), without}), 2);
  EXPECT_EQ(process_that_set(name, {process("a", 1), hidden, without}), 8);
  EXPECT_EQ(process_that_set(name, {process("a", 1)}), 0);
  EXPECT_EQ(process_that_set(name), ::getppid());
  ::unsetenv(name);
  EXPECT_EQ(process_that_set(name, {without}), 0);
}

}  // namespace
}  // namespace kindling
