#include "kindling/launch/launch_environment.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "kindling/base/error.h"
#include "launch/slurm_lists.h"
#include "launch/variable_map.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::optional<LaunchEnvironment> launched_by(const VariableMap& variables) {
  return launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// "launcher rank/size local local_rank/local_size at address:port"
std::string told(const VariableMap& variables) {
  const auto at = launched_by(variables);
  if (!at) return "alone";
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + "/" + std::to_string(b);
  };
  return at->launcher + " " + pair(at->rank, at->size) + " local " + pair(at->local_rank, at->local_size) +
         " at " +
         (at->store_file.empty() ? at->master_address + ":" + std::to_string(at->master_port)
                                 : at->store_file.string());
}

const VariableMap kMaster{{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
const VariableMap kPlainRanks = kMaster + VariableMap{{"RANK", "1"}, {"WORLD_SIZE", "4"}};
const VariableMap kTorchrunRanks = kPlainRanks + VariableMap{{"TORCHELASTIC_RUN_ID", "none"},
                                                             {"LOCAL_RANK", "1"},
                                                             {"LOCAL_WORLD_SIZE", "2"},
                                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                             {"TORCHELASTIC_RESTART_COUNT", "3"}};
const VariableMap kSlurmJob{{"SLURM_JOB_ID", "77"}, {"SLURM_JOB_NODELIST", "node[007-009],other"},
                            {"SLURM_NTASKS", "8"},  {"SLURM_PROCID", "0"},
                            {"SLURM_LOCALID", "0"}, {"SLURM_JOB_NAME", "train.sh"}};
const VariableMap kSlurmTask = kSlurmJob + VariableMap{{"SLURM_STEP_ID", "0"},
                                                       {"SLURM_STEP_NUM_TASKS", "6"},
                                                       {"SLURM_STEP_NODELIST", "node[008-009]"},
                                                       {"SLURM_STEP_TASKS_PER_NODE", "4,2"},
                                                       {"SLURM_NODEID", "1"},
                                                       {"SLURM_PROCID", "5"},
                                                       {"SLURM_LOCALID", "1"},
                                                       {"MASTER_PORT", "29500"}};
const VariableMap kOpenMpiRank{{"OMPI_COMM_WORLD_RANK", "2"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const VariableMap kMpichRank{
    {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const VariableMap kOwnRank{
    {"KINDLING_RANK", "1"}, {"KINDLING_SIZE", "2"}, {"KINDLING_STORE_FILE", "/tmp/x/store"}};

TEST(LaunchEnvironment, IsEmptyWithoutALauncher) {
  const std::vector<VariableMap> table{
      {},
      kMaster,
      kMaster + VariableMap{{"RANK", "0"}, {"WORLD_SIZE", "1"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
      {{"RANK", ""}, {"WORLD_SIZE", ""}},
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
      {{"KINDLING_RANK", "0"}, {"KINDLING_SIZE", "1"}, {"KINDLING_STORE_FILE", "x"}},
      // A batch script's own shell, one of salloc, the interactive step of salloc, and a step of one task.
      kSlurmJob,
      kSlurmJob + VariableMap{{"SLURM_JOB_NAME", "bash"}},
      kSlurmJob + VariableMap{{"SLURM_JOB_NAME", "interactive"}, {"SLURM_STEP_ID", "4294967290"}},
      kSlurmTask + VariableMap{{"SLURM_STEP_NUM_TASKS", "1"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_STEP_TASKS_PER_NODE", "1"},
                               {"SLURM_NODEID", "0"}},
  };
  for (std::size_t i = 0; i < table.size(); ++i) EXPECT_EQ(told(table[i]), "alone") << "row " << i;
}

TEST(LaunchEnvironment, IsReadFromEveryLauncher) {
  const std::vector<std::pair<VariableMap, std::string>> table{
      {kPlainRanks, "RANK and WORLD_SIZE 1/4 local 0/1 at node1:29500"},
      {kPlainRanks + VariableMap{{"LOCAL_RANK", "1"}}, "RANK and WORLD_SIZE 1/4 local 1/2 at node1:29500"},
      {kPlainRanks + VariableMap{{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}},
       "RANK and WORLD_SIZE 1/4 local 1/4 at node1:29500"},
      // On one machine, so all of them are.
      {kPlainRanks + VariableMap{{"MASTER_ADDR", "localhost"}},
       "RANK and WORLD_SIZE 1/4 local 1/4 at localhost:29500"},
      {kPlainRanks + VariableMap{{"MASTER_ADDR", "127.0.0.1"}, {"LOCAL_RANK", "0"}},
       "RANK and WORLD_SIZE 1/4 local 0/1 at 127.0.0.1:29500"},
      {kTorchrunRanks, "torchrun 1/4 local 1/2 at node1:29500"},
      {kTorchrunRanks +
           VariableMap{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}},
       "torchrun 0/1 local 0/1 at node1:29500"},
      {kSlurmTask, "SLURM 5/6 local 1/2 at node008:29500"},
      {kSlurmTask + VariableMap{{"SLURM_JOB_NAME", "interactive"}}, "SLURM 5/6 local 1/2 at node008:29500"},
      {kSlurmTask + VariableMap{{"MASTER_ADDR", "head"}}, "SLURM 5/6 local 1/2 at head:29500"},
      {kSlurmTask + VariableMap{{"SLURM_STEP_NUM_TASKS", ""}}, "SLURM 5/8 local 1/2 at node008:29500"},
      {kSlurmTask + VariableMap{{"SLURM_STEP_NODELIST", ""}, {"SLURM_STEP_TASKS_PER_NODE", ""}},
       "SLURM 5/6 local 1/2 at node007:29500"},
      {kOpenMpiRank + kMaster, "Open MPI 2/4 local 0/2 at node1:29500"},
      {kOpenMpiRank + VariableMap{{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"MASTER_PORT", "29500"}},
       "Open MPI 2/4 local 0/4 at 127.0.0.1:29500"},
      {kMpichRank + kMaster, "MPICH 3/4 local 1/2 at node1:29500"},
      {kOwnRank, "kindling 1/2 local 1/2 at /tmp/x/store"},
  };
  for (const auto& [variables, expected] : table) EXPECT_EQ(told(variables), expected);
}

TEST(LaunchEnvironment, KnowsWhoServesTheStoreAndHowOftenItWasRestarted) {
  const auto torchrun = launched_by(kTorchrunRanks);
  ASSERT_TRUE(torchrun);
  EXPECT_TRUE(torchrun->has_agent_store);
  EXPECT_EQ(torchrun->restart_count, 3);
  const auto served_by_rank_0 =
      launched_by(kTorchrunRanks + VariableMap{{"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  EXPECT_FALSE(served_by_rank_0->has_agent_store);
  EXPECT_FALSE(
      launched_by(kPlainRanks + VariableMap{{"TORCHELASTIC_USE_AGENT_STORE", "True"}})->has_agent_store);
  EXPECT_EQ(launched_by(kOwnRank)->restart_count, 0);
  const auto own = launched_by(
      kOwnRank + VariableMap{{"KINDLING_RESTART_COUNT", "2"}, {"KINDLING_RESTART_REASON", "it was lost"}});
  EXPECT_EQ(own->restart_count, 2);
  EXPECT_EQ(own->restart_reason, "it was lost");
}

TEST(LaunchEnvironment, PrefersTheClosestLauncher) {
  // Processes that kindling has launched inherit what its own environment was.
  EXPECT_EQ(told(kOwnRank + kTorchrunRanks + kSlurmTask + kOpenMpiRank), told(kOwnRank));
  // One torchrun per task of srun or mpirun.
  EXPECT_EQ(told(kSlurmTask + kOpenMpiRank + kTorchrunRanks), told(kTorchrunRanks));
  // mpirun starts its daemons, and so its ranks, by srun.
  EXPECT_EQ(told(kSlurmTask + kMaster + kOpenMpiRank), told(kOpenMpiRank + kMaster));
  EXPECT_EQ(told(kSlurmTask + kMaster + kMpichRank), told(kMpichRank + kMaster));
  // srun itself speaks PMI, and knows its hosts.
  EXPECT_EQ(told(kSlurmTask + VariableMap{{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}}), told(kSlurmTask));
  // One process of a launcher says nothing about others.
  EXPECT_EQ(told(kPlainRanks + VariableMap{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}),
            told(kPlainRanks));
  // A script that passes on what the launcher says, all of it or a part.
  EXPECT_EQ(told(kSlurmTask + VariableMap{{"WORLD_SIZE", "6"}}), told(kSlurmTask));
  EXPECT_EQ(told(kSlurmTask + VariableMap{{"WORLD_SIZE", "6"}, {"RANK", "5"}, {"LOCAL_RANK", "1"}}),
            told(kSlurmTask));
}

TEST(LaunchEnvironment, HasAPortPerJobThatAllRanksAgreeOn) {
  const auto port = [](const VariableMap& variables) { return launched_by(variables)->master_port; };
  VariableMap task = kSlurmTask;
  task.erase("MASTER_PORT");
  const auto first = port(task);
  EXPECT_GE(first, 15000);
  EXPECT_LT(first, 30000);
  EXPECT_EQ(port(task + VariableMap{{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}}),
            first);
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 100; ++i) {
    ports.insert(port(task + VariableMap{{"SLURM_JOB_ID", std::to_string(1000 + i)}}));
    ports.insert(port(task + VariableMap{{"SLURM_STEP_ID", std::to_string(1 + i)}}));
  }
  EXPECT_GT(ports.size(), 190u);  // of 200 in 15000 places, 1.3 are expected to meet another one
  const VariableMap local = kOpenMpiRank + VariableMap{{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  EXPECT_EQ(
      port(local + VariableMap{{"PMIX_NAMESPACE", "prterun-node1-77@1"}}),
      port(local + VariableMap{{"PMIX_NAMESPACE", "prterun-node1-77@1"}, {"OMPI_COMM_WORLD_RANK", "1"}}));
}

TEST(LaunchEnvironment, RefusesWhatCannotBeUsed) {
  struct Row {
    VariableMap variables;
    std::string place, found, wanted;
  };
  const std::string too_large = "a whole number from 0 to 3, because WORLD_SIZE is 4";
  const std::string is_rank_set = "it is not set, but RANK is";
  const std::vector<Row> table{
      // partial
      {kMaster + VariableMap{{"RANK", "1"}}, "WORLD_SIZE", is_rank_set, "both"},
      {kMaster + VariableMap{{"WORLD_SIZE", "4"}}, "RANK", "it is not set, but WORLD_SIZE is", "both"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "4"}}, "MASTER_ADDR", "it is not set and cannot be derived", ""},
      {{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}},
       "MASTER_PORT",
       "it is not set",
       "the port"},
      {{{"TORCHELASTIC_RUN_ID", "none"}}, "RANK", "it is not set, but TORCHELASTIC_RUN_ID is", "both"},
      {{{"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "1"}}, "WORLD_SIZE", is_rank_set, "both"},
      {{{"OMPI_COMM_WORLD_RANK", "1"}},
       "OMPI_COMM_WORLD_SIZE",
       "it is not set, but OMPI_COMM_WORLD_RANK is",
       "both"},
      {kOpenMpiRank, "MASTER_ADDR", "it is not set and cannot be derived", "the address of rank 0"},
      {kOpenMpiRank + VariableMap{{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}, "MASTER_PORT",
       "it is not set and cannot be derived", "the port of the store"},
      {{{"PMI_SIZE", "2"}}, "PMI_RANK", "it is not set, but PMI_SIZE is", "both"},
      {kMpichRank, "MASTER_ADDR", "it is not set and cannot be derived", ""},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}},
       "SLURM_NTASKS",
       "it is not set, but SLURM_PROCID is",
       "both"},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},
       "MASTER_ADDR",
       "it is not set",
       ""},
      {{{"KINDLING_RANK", "1"}}, "KINDLING_SIZE", "it is not set, but KINDLING_RANK is", "both"},
      {{{"KINDLING_RANK", "1"}, {"KINDLING_SIZE", "2"}}, "KINDLING_STORE_FILE", "it is not set", "both"},
      // garbage
      {kPlainRanks + VariableMap{{"RANK", "one"}}, "RANK", "it is \"one\"", too_large},
      {kPlainRanks + VariableMap{{"RANK", "1x"}}, "RANK", "it is \"1x\"", too_large},
      {kPlainRanks + VariableMap{{"RANK", " 1"}}, "RANK", "it is \" 1\"", too_large},
      {kPlainRanks + VariableMap{{"RANK", "1.5"}}, "RANK", "it is \"1.5\"", too_large},
      {kPlainRanks + VariableMap{{"RANK", "-1"}}, "RANK", "it is \"-1\"", too_large},
      {kPlainRanks + VariableMap{{"RANK", "99999999999999999999"}}, "RANK", "it is \"99999999999999999999\"",
       too_large},
      {kPlainRanks + VariableMap{{"RANK", "\x1b[2J"}}, "RANK", "it is \" [2J\"", too_large},
      {kPlainRanks + VariableMap{{"WORLD_SIZE", "0"}}, "WORLD_SIZE", "it is \"0\"",
       "a whole number from 1 to 2147483647"},
      {kPlainRanks + VariableMap{{"WORLD_SIZE", "2147483648"}}, "WORLD_SIZE", "it is",
       "from 1 to 2147483647"},
      {kPlainRanks + VariableMap{{"LOCAL_RANK", "x"}}, "LOCAL_RANK", "it is \"x\"", too_large},
      {kPlainRanks + VariableMap{{"MASTER_PORT", "0"}}, "MASTER_PORT", "it is \"0\"", "from 1 to 65535"},
      {kPlainRanks + VariableMap{{"MASTER_PORT", "65536"}}, "MASTER_PORT", "it is \"65536\"",
       "from 1 to 65535"},
      {kPlainRanks + VariableMap{{"MASTER_ADDR", "a b"}}, "MASTER_ADDR", "it contains spaces", "the name"},
      {kTorchrunRanks + VariableMap{{"TORCHELASTIC_RESTART_COUNT", "many"}}, "TORCHELASTIC_RESTART_COUNT",
       "it is \"many\"", ""},
      {kSlurmTask + VariableMap{{"SLURM_STEP_ID", "x"}}, "SLURM_STEP_ID", "it is \"x\"", ""},
      {kSlurmTask + VariableMap{{"SLURM_STEP_NODELIST", "node["}}, "SLURM_STEP_NODELIST", "it is \"node[\"",
       "hosts as in node[003-007,9]"},
      {kSlurmTask + VariableMap{{"SLURM_STEP_TASKS_PER_NODE", "4;2"}}, "SLURM_STEP_TASKS_PER_NODE",
       "it is \"4;2\"", "the tasks of each node"},
      // contradicting
      {kPlainRanks + VariableMap{{"RANK", "4"}}, "RANK", "it is \"4\"", too_large},
      {kPlainRanks + VariableMap{{"LOCAL_RANK", "4"}}, "LOCAL_RANK", "it is \"4\"", too_large},
      {kTorchrunRanks + VariableMap{{"LOCAL_RANK", "2"}}, "LOCAL_WORLD_SIZE", "it is \"2\"", "from 3 to 4"},
      {kTorchrunRanks + VariableMap{{"LOCAL_WORLD_SIZE", "5"}}, "LOCAL_WORLD_SIZE", "it is \"5\"",
       "from 2 to 4"},
      {kOpenMpiRank + kMaster + VariableMap{{"OMPI_COMM_WORLD_RANK", "4"}}, "OMPI_COMM_WORLD_RANK",
       "it is \"4\"", "from 0 to 3"},
      {kOpenMpiRank + kPlainRanks, "RANK", "it is 1, but Open MPI's OMPI_COMM_WORLD_RANK is 2",
       "the same number"},
      {kOpenMpiRank + kMaster + VariableMap{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "WORLD_SIZE",
       "it is 2, but Open MPI's OMPI_COMM_WORLD_SIZE is 4", "the same number"},
      {kSlurmTask + VariableMap{{"RANK", "0"}}, "RANK", "it is 0, but SLURM's SLURM_PROCID is 5",
       "the same number"},
      {kSlurmTask + VariableMap{{"LOCAL_RANK", "0"}}, "LOCAL_RANK", "it is 0, but SLURM's SLURM_LOCALID is 1",
       ""},
      {kSlurmTask + VariableMap{{"SLURM_NODEID", "2"}}, "SLURM_STEP_TASKS_PER_NODE", "it is \"4,2\"",
       "for node 2"},
      {kSlurmTask + VariableMap{{"SLURM_LOCALID", "3"}}, "SLURM_STEP_TASKS_PER_NODE", "it is \"4,2\"",
       "more than 3"},
      {kMpichRank + kMaster + VariableMap{{"RANK", "0"}}, "RANK", "it is 0, but MPICH's PMI_RANK is 3", ""},
  };
  for (const Row& row : table) {
    const std::string text = error_text<ConfigError>([&] { launched_by(row.variables); });
    SCOPED_TRACE(text);
    EXPECT_TRUE(text.starts_with("environment variable " + row.place + ": " + row.found))
        << row.place << row.found;
    EXPECT_NE(text.find("expected: "), std::string::npos);
    EXPECT_NE(text.find(row.wanted), std::string::npos) << row.wanted;
    EXPECT_TRUE(text.find("; start all processes") != std::string::npos ||
                text.find("; set ") != std::string::npos || text.find("; unset ") != std::string::npos);
  }
}

TEST(LaunchEnvironment, AsksTheProcessByDefault) {
  ASSERT_EQ(::setenv("KINDLING_RANK", "1", 1), 0);
  ASSERT_EQ(::setenv("KINDLING_SIZE", "2", 1), 0);
  ASSERT_EQ(::setenv("KINDLING_STORE_FILE", "/x", 1), 0);
  const auto at = launch_environment();
  for (const char* name : {"KINDLING_RANK", "KINDLING_SIZE", "KINDLING_STORE_FILE"}) ::unsetenv(name);
  ASSERT_TRUE(at);
  EXPECT_EQ(at->rank, 1);
}

TEST(SlurmLists, GiveTheFirstHost) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"node1", "node1"},
      {"node1,node2", "node1"},
      {"node[003-007,9]", "node003"},
      {"node[9,003-007]", "node9"},
      {"rack[1-2]node[04-05].cluster.example,x", "rack1node04.cluster.example"},
      {"node[1-2]-ib0", "node1-ib0"},
      {"a_b-c[7]", "a_b-c7"},
      {std::string(100000, 'a') + ",b", std::string(100000, 'a')},
  };
  for (const auto& [list, host] : table) EXPECT_EQ(first_host(list).value_or("(none)"), host);
  for (const char* list :
       {"", ",", "node[", "node[]", "node[-3]", "node[a]", "node]", "a b", "$(x)", "node[1"})
    EXPECT_FALSE(first_host(list)) << list;
}

TEST(SlurmLists, GiveTheTasksOfANode) {
  const auto tasks = [](const char* list, std::int64_t node) {
    return tasks_of_node(list, node).value_or(-1);
  };
  EXPECT_EQ(tasks("4", 0), 4);
  EXPECT_EQ(tasks("4", 1), -1);
  EXPECT_EQ(tasks("4(x2),3", 1), 4);
  EXPECT_EQ(tasks("4(x2),3", 2), 3);
  EXPECT_EQ(tasks("4(x2),3", 3), -1);
  EXPECT_EQ(tasks("1,2(x1000000),3", 1000001), 3);
  for (const char* list : {"", "x", "4(x2", "4(2)", "4(x)", "-4", "4;2", "99999999999"})
    EXPECT_EQ(tasks(list, 0), -1) << list;
}

}  // namespace
}  // namespace kindling
