// Real processes: shell scripts, and launchers in processes of their own.
#include "kindling/launch/local_launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "launch/child_process.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Clock = std::chrono::steady_clock;

// What no test reaches unless something hangs.
constexpr auto kLong = std::chrono::seconds(20);

void wait_until(const std::function<bool()>& condition) {
  const auto end = Clock::now() + kLong;
  while (!condition() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(condition());
}

// The letter of /proc/ID/stat: "Z" has ended and waits for its parent; empty: there is none.
std::string process_state(pid_t id) {
  std::ifstream stat("/proc/" + std::to_string(id) + "/stat");
  std::string word, state;
  stat >> word >> word >> state;
  return state;
}

bool has_ended(pid_t id) { return process_state(id).empty() || process_state(id) == "Z"; }

class LocalLaunchTest : public testing::Test {
 protected:
  LocalLaunchTest() { ::signal(SIGHUP, SIG_DFL); }  // ignored under nohup

  // Each process writes to files whose names end with its rank.
  LocalLaunch script(const std::string& text, std::int64_t num_processes, double grace_s = 0.2) const {
    return {.command = {"/bin/sh", "-c", "cd '" + scratch_.folder().string() + "'\n" + text},
            .num_processes = num_processes,
            .grace_s = grace_s};
  }
  // Another script for rank 0.
  LocalLaunch scripts(const std::string& first, const std::string& others, double grace_s = 0.2) const {
    return script("if [ $KINDLING_RANK = 0 ]; then\n" + first + "\nelse\n" + others + "\nfi", 3, grace_s);
  }

  std::string text(const std::string& name) const {
    std::ifstream stream(scratch_ / name);
    std::ostringstream all;
    all << stream.rdbuf();
    return all.str();
  }
  bool has(const std::string& name) const { return std::filesystem::exists(scratch_ / name); }
  bool have(const std::string& name, int num_processes) const {
    for (int rank = 0; rank < num_processes; ++rank)
      if (text(name + std::to_string(rank)).empty()) return false;
    return true;
  }
  pid_t id(int rank) const { return std::stoi(text("id" + std::to_string(rank))); }
  void touch(const std::string& name) const { std::ofstream(scratch_ / name) << "x"; }

  // Nobody is left, not even one that has ended.
  static void expect_no_children() {
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

  const Scratch scratch_;
};

// A launcher in a process of its own.
class Launcher {
 public:
  explicit Launcher(const std::function<int()>& launch) : id_(::fork()) {
    if (id_ == 0) ::_exit(launch());
  }
  ~Launcher() {
    send(SIGKILL);
    if (!is_done_) ::waitpid(id_, nullptr, 0);
  }
  void send(int signal) const {
    if (!is_done_) ::kill(id_, signal);
  }
  int wait() {
    int status = 0;
    ::waitpid(id_, &status, 0);
    is_done_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t id_;
  bool is_done_ = false;
};

TEST_F(LocalLaunchTest, GivesEachProcessItsPlaceAndAFolderThatNobodyElseEnters) {
  ASSERT_EQ(::unsetenv("OMP_NUM_THREADS"), 0);
  LocalLaunch launch = script(
      "echo $KINDLING_RANK of $KINDLING_SIZE, $OMP_NUM_THREADS thread, $EXTRA, of $HOME "
      ">place$KINDLING_RANK\n"
      "echo $KINDLING_STORE_FILE >store$KINDLING_RANK\n"
      "stat -c %a \"${KINDLING_STORE_FILE%/*}\" >mode$KINDLING_RANK\n"
      "ls -A \"${KINDLING_STORE_FILE%/*}\" >content$KINDLING_RANK\n"
      "tr '\\0' '\\n' </proc/$$/environ | grep -c ^HOME= >homes$KINDLING_RANK\n"
      "echo >>\"$KINDLING_STORE_FILE.lock\"",  // files that a store creates next to it are removed too
      3);
  launch.variables["EXTRA"] = "a = 'b'";
  launch.variables["HOME"] = "elsewhere";
  EXPECT_EQ(run_local_processes(launch), 0);
  for (const std::string rank : {"0", "1", "2"}) {
    EXPECT_EQ(text("place" + rank), rank + " of 3, 1 thread, a = 'b', of elsewhere\n");
    EXPECT_EQ(text("mode" + rank), "700\n");
    EXPECT_EQ(text("homes" + rank), "1\n");  // of two, programs differ in which they take
    EXPECT_EQ(text("store" + rank), text("store0"));
  }
  const std::string store = text("store0");
  ASSERT_TRUE(store.ends_with("/store\n")) << store;
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(store).parent_path()));
  expect_no_children();
}

TEST_F(LocalLaunchTest, LeavesANumberOfThreadsThatIsSet) {
  ASSERT_EQ(::setenv("OMP_NUM_THREADS", "3", 1), 0);
  EXPECT_EQ(run_local_processes(script("echo $OMP_NUM_THREADS >threads$KINDLING_RANK", 2)), 0);
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(text("threads1"), "3\n");
}

TEST_F(LocalLaunchTest, KeepsArguments) {
  LocalLaunch launch = script("printf '<%s>' \"$0\" \"$@\" >arguments$KINDLING_RANK", 2);
  const std::vector<std::string> words{"the name", "a b", "", "'\"", "$HOME", "*", "\n", "ä"};
  launch.command.insert(launch.command.end(), words.begin(), words.end());
  EXPECT_EQ(run_local_processes(launch), 0);
  EXPECT_EQ(text("arguments1"), "<the name><a b><><'\"><$HOME><*><\n><ä>");
}

TEST_F(LocalLaunchTest, RunsTheProgramUnderAnotherName) {
  LocalLaunch launch = script("tr '\\0' ' ' </proc/$$/cmdline >name$KINDLING_RANK", 1);
  launch.command[0] = "kindling";
  launch.program = "/bin/sh";
  EXPECT_EQ(run_local_processes(launch), 0);
  EXPECT_TRUE(text("name0").starts_with("kindling -c ")) << text("name0");
}

TEST_F(LocalLaunchTest, EndsAsTheFirstThatFails) {
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  const auto start = Clock::now();
  EXPECT_EQ(run_local_processes(scripts("exec sleep 60", "[ $KINDLING_RANK = 2 ] && exit 3; exec sleep 60")),
            3);
  EXPECT_EQ(
      run_local_processes(scripts("exec sleep 60", "[ $KINDLING_RANK = 2 ] && kill -SEGV $$; exec sleep 60")),
      128 + SIGSEGV);
  EXPECT_LT(Clock::now() - start, kLong);
  set_log_observer({});
  expect_no_children();
  EXPECT_EQ(
      messages,
      (std::vector<std::string>{
          "process 2 of 3 has ended with exit code 3; the others have 0.2 s to exit",
          "process 2 of 3 was ended by signal 11 (Segmentation fault); the others have 0.2 s to exit"}));
}

TEST_F(LocalLaunchTest, RestartsAllWhenOneIsLost) {
  // Nobody fails before all have written.
  LocalLaunch launch = script(
      "echo $KINDLING_RESTART_COUNT: $KINDLING_RESTART_REASON >>starts$KINDLING_RANK\n"
      "echo $KINDLING_STORE_FILE >>stores$KINDLING_RANK\n"
      "n=$KINDLING_RESTART_COUNT; touch ready$n$KINDLING_RANK\n"
      "while ! [ -e ready${n}0 -a -e ready${n}1 -a -e ready${n}2 ]; do sleep 0.01; done\n"
      "[ $KINDLING_RANK$n = 10 ] && kill -KILL $$\n"
      "[ $KINDLING_RANK$n = 21 ] && exit 7\n"
      "[ $n = 2 ] || exec sleep 60",
      3);
  launch.max_restarts = 5;
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  EXPECT_EQ(run_local_processes(launch), 0);
  set_log_observer({});
  expect_no_children();
  const std::string killed = "process 1 of 3 was ended by signal 9 (Killed)",
                    left = "process 2 of 3 has ended with exit code 7";
  EXPECT_EQ(messages, (std::vector<std::string>{
                          killed + "; the others have 0.2 s to exit", "restart 1 of 5, because " + killed,
                          left + "; the others have 0.2 s to exit", "restart 2 of 5, because " + left}));
  std::vector<std::filesystem::path> stores;
  std::istringstream lines(text("stores0"));
  for (std::string line; std::getline(lines, line);) stores.emplace_back(line);
  ASSERT_EQ(stores.size(), 3u);
  EXPECT_NE(stores[0], stores[1]);
  EXPECT_NE(stores[1], stores[2]);
  EXPECT_EQ(stores[0].parent_path(), stores[2].parent_path());
  EXPECT_FALSE(std::filesystem::exists(stores[0].parent_path()));
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(text("starts" + std::string(rank)), "0:\n1: " + killed + "\n2: " + left + "\n");
    EXPECT_EQ(text("stores" + std::string(rank)), text("stores0"));
  }
}

TEST_F(LocalLaunchTest, GivesUpAfterSoManyRestarts) {
  LocalLaunch launch = script("echo >>starts$KINDLING_RANK; exit 1$KINDLING_RESTART_COUNT", 2, 60);
  for (const int max_restarts : {0, 1, 3}) {
    launch.max_restarts = max_restarts;
    std::filesystem::remove(scratch_ / "starts1");
    EXPECT_EQ(run_local_processes(launch), 10 + max_restarts);
    EXPECT_EQ(text("starts1"), std::string(static_cast<std::size_t>(max_restarts) + 1, '\n'));
  }
}

TEST_F(LocalLaunchTest, DoesNotRestartAfterAFinalExitCode) {
  LocalLaunch launch = script("echo >>starts$KINDLING_RANK; [ $KINDLING_RANK = 1 ] && exit 3; exit 1", 2, 60);
  launch.max_restarts = 2;
  launch.final_exit_codes = {2, 3};
  EXPECT_EQ(run_local_processes(launch), 3);
  EXPECT_EQ(text("starts0"), "\n");
  // A process that a signal has ended reports nothing, whatever its code.
  launch = script("echo >>killed$KINDLING_RANK; [ $KINDLING_RANK = 1 ] && kill -KILL $$; exit 1", 2, 60);
  launch.max_restarts = 2;
  launch.final_exit_codes = {1, 128 + SIGKILL};
  EXPECT_EQ(run_local_processes(launch), 128 + SIGKILL);
  EXPECT_EQ(text("killed1"), "\n\n\n");
}

// Nor where a process takes the signal badly, or has failed before it comes.
TEST_F(LocalLaunchTest, DoesNotStartAnewWhatWasToStop) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string name = std::to_string(signal) + "id";
    std::thread sender([&] {
      wait_until([&] { return have(name, 2); });
      ::kill(::getpid(), signal);
    });
    LocalLaunch launch = script("echo $$ >>" + name + "$KINDLING_RANK; exec sleep 60", 2);
    launch.max_restarts = 3;
    EXPECT_EQ(run_local_processes(launch), 128 + signal);
    sender.join();
    EXPECT_EQ(std::ranges::count(text(name + "0"), '\n'), 1);
  }
  // SIGUSR1 asks for no stop.
  std::thread sender([&] {
    wait_until([&] { return have("asked", 2); });
    ::kill(::getpid(), SIGUSR1);
  });
  LocalLaunch launch = script(
      "[ $KINDLING_RESTART_COUNT = 1 ] && exit 0; trap 'kill -KILL $$' USR1; echo >>asked$KINDLING_RANK\n"
      "while true; do sleep 0.01; done",
      2);
  launch.max_restarts = 3;
  EXPECT_EQ(run_local_processes(launch), 0);
  sender.join();
}

TEST_F(LocalLaunchTest, EndsNoProcessByARequestToSave) {
  std::thread sender([&] {
    wait_until([&] { return have("ready", 2); });
    ::kill(::getpid(), SIGUSR1);
    wait_until([&] { return has("got1"); });
    touch("go");
  });
  EXPECT_EQ(run_local_processes(
                script("[ $KINDLING_RANK = 1 ] && trap 'touch got1' USR1; echo x >ready$KINDLING_RANK\n"
                       "while ! [ -e go ]; do sleep 0.01; done; exit 0",
                       2)),
            0);
  sender.join();
}

TEST_F(LocalLaunchTest, PassesNoHangupOnThatIsIgnored) {
  Launcher launcher([&] {
    ::signal(SIGHUP, SIG_IGN);
    return run_local_processes(
        script("grep SigIgn /proc/self/status >ignored$KINDLING_RANK; echo x >ready$KINDLING_RANK\n"
               "while ! [ -e go ]; do sleep 0.01; done",
               2));
  });
  wait_until([&] { return have("ready", 2); });
  launcher.send(SIGHUP);
  touch("go");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(std::stoull(text("ignored1").substr(7), nullptr, 16) & 1, 1);  // SIGHUP is the first one
}

// The caller blocks them so that none changes its exit code before or after the launch.
TEST_F(LocalLaunchTest, PassesOnSignalsThatTheCallerBlocks) {
  Launcher launcher([&] {
    sigset_t blocked, now;
    ::sigemptyset(&blocked);
    for (const int signal : {SIGTERM, SIGCHLD}) ::sigaddset(&blocked, signal);
    ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    const int exit_code =
        run_local_processes(script("grep SigBlk /proc/self/status >blocked$KINDLING_RANK; trap 'exit 143' "
                                   "TERM; echo x >ready$KINDLING_RANK\n"
                                   "while true; do sleep 0.01; done",
                                   2));
    ::raise(SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
    return ::sigismember(&now, SIGTERM) == 1 && ::sigismember(&now, SIGINT) == 0 ? exit_code : 99;
  });
  wait_until([&] { return have("ready", 2); });
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143);
  EXPECT_EQ(std::stoull(text("blocked1").substr(7), nullptr, 16), 0u);
}

TEST_F(LocalLaunchTest, TakesSomeExitCodesForCompletedWork) {
  LocalLaunch launch = script("echo >>starts$KINDLING_RANK; [ $KINDLING_RANK = 0 ] && exit 9; exit 0", 2, 60);
  launch.max_restarts = 2;
  launch.completed_exit_codes = {9};
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  EXPECT_EQ(run_local_processes(launch), 9);
  launch.command.back() = "[ $KINDLING_RANK = 0 ] && exit 9; exit 3";
  launch.max_restarts = 0;
  EXPECT_EQ(run_local_processes(launch), 3);
  set_log_observer({});
  EXPECT_EQ(text("starts0"), "\n");
  EXPECT_EQ(messages.size(), 1u);
}

TEST_F(LocalLaunchTest, LetsTheOthersLeaveByThemselves) {
  const auto start = Clock::now();
  EXPECT_EQ(run_local_processes(scripts(
                "exit 4", "trap 'touch asked' TERM; sleep 0.5; touch left$KINDLING_RANK; exit 5", 60)),
            4);
  EXPECT_LT(Clock::now() - start, kLong);
  EXPECT_TRUE(has("left1") && has("left2"));
  EXPECT_FALSE(has("asked"));
}

TEST_F(LocalLaunchTest, AsksTheOthersToLeaveAndThenMakesThem) {
  const auto start = Clock::now();
  // Rank 0 fails once rank 1 obeys and rank 2 does not.
  EXPECT_EQ(run_local_processes(scripts(
                "while ! [ -e ready1 -a -e ready2 ]; do sleep 0.01; done; exit 4",
                "if [ $KINDLING_RANK = 2 ]; then trap '' TERM; else trap ': >asked; exit 0' TERM; fi\n"
                "touch ready$KINDLING_RANK; while true; do sleep 0.01; done",
                0.6)),
            4);
  EXPECT_TRUE(has("asked"));
  EXPECT_GT(Clock::now() - start, std::chrono::milliseconds(1200));  // two times the grace
  EXPECT_LT(Clock::now() - start, kLong);
  expect_no_children();
}

TEST_F(LocalLaunchTest, EndsAProcessThatIsStopped) {
  EXPECT_EQ(
      run_local_processes(scripts("while ! [ -s id1 -a -s id2 ]; do sleep 0.01; done; sleep 0.05; exit 4",
                                  "echo $$ >id$KINDLING_RANK; kill -STOP $$; touch went_on")),
      4);
  expect_no_children();
  EXPECT_TRUE(has_ended(id(1)) && has_ended(id(2)));
}

TEST_F(LocalLaunchTest, DoesNotWaitForEverForTheLastOne) {
  LocalLaunch launch = scripts("exit 0", "[ $KINDLING_RANK = 1 ] && kill -STOP $$; exit 0");
  launch.end_timeout_s = 0.3;
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  const auto start = Clock::now();
  EXPECT_EQ(run_local_processes(launch), 1);
  EXPECT_LT(Clock::now() - start, kLong);
  set_log_observer({});
  EXPECT_EQ(messages,
            std::vector<std::string>{"process 1 of 3 is still running 0.3 s after another one ended"});
  expect_no_children();
  // A process that ends in time has not failed, and an earlier failure counts as always.
  launch = scripts("exit 0", "sleep 0.1; exit 0");
  launch.end_timeout_s = 20;
  EXPECT_EQ(run_local_processes(launch), 0);
  launch = scripts("exit 0", "[ $KINDLING_RANK = 1 ] && exit 3; exec sleep 60");
  launch.end_timeout_s = 20;
  EXPECT_EQ(run_local_processes(launch), 3);
  expect_no_children();
}

TEST_F(LocalLaunchTest, PassesSignalsOnOnceToEach) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const std::string name = std::to_string(signal) + "got";
    // The last rank needs longer than those who are thrown out would have.
    const LocalLaunch launch =
        script("trap 'echo x >>" + name + "$KINDLING_RANK' " + std::to_string(signal) + "\necho $$ >" + name +
                   "id$KINDLING_RANK\nwhile ! [ -e " + name + "$KINDLING_RANK ]; do sleep 0.01; done\n" +
                   "[ $KINDLING_RANK = 1 ] && sleep 0.4\ntouch " + name + "end$KINDLING_RANK\nexit " +
                   std::to_string(128 + signal),
               2, 0.1);
    std::thread sender([&] {
      wait_until([&] { return have(name + "id", 2); });
      ::kill(::getpid(), signal);
    });
    EXPECT_EQ(run_local_processes(launch), 128 + signal);
    sender.join();
    for (const std::string rank : {"0", "1"}) {
      EXPECT_EQ(text(name + rank), "x\n");
      EXPECT_TRUE(has(name + "end" + rank));
    }
  }
  expect_no_children();
}

// One that a signal has ended has not done what was asked for.
TEST_F(LocalLaunchTest, DoesNotWaitForProcessesWhosePeerASignalHasEnded) {
  std::thread sender([&] {
    wait_until([&] { return have("id", 3); });
    ::kill(::getpid(), SIGTERM);
  });
  EXPECT_EQ(run_local_processes(scripts("echo $$ >id0; exec sleep 60",
                                        "trap '' TERM; echo $$ >id$KINDLING_RANK; exec sleep 60")),
            128 + SIGTERM);
  sender.join();
  expect_no_children();
}

// A process in the background that reads from its terminal is stopped.
TEST_F(LocalLaunchTest, GivesNoTerminalToReadFrom) {
  int terminal = -1;
  const pid_t launcher = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (launcher == 0) ::_exit(run_local_processes(script("cat >input; exit 3", 1)));
  int status = 0;
  wait_until([&] { return has_ended(launcher); });
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  ::close(terminal);
}

TEST_F(LocalLaunchTest, HasProcessesOfWhichEachIsAGroup) {
  EXPECT_EQ(run_local_processes(script("cut -d ' ' -f 1,5 /proc/$$/stat >group$KINDLING_RANK", 2)), 0);
  for (const char* name : {"group0", "group1"}) {
    std::istringstream stat(text(name));
    pid_t process = 0, group = 0;
    stat >> process >> group;
    EXPECT_EQ(process, group) << name;
    EXPECT_NE(group, ::getpgrp());
  }
}

TEST_F(LocalLaunchTest, LeavesNoProcessWhenItIsKilled) {
  const Launcher launcher([&] {
    ::setenv("TMPDIR", scratch_.folder().c_str(), 1);  // its folder stays
    return run_local_processes(script("trap '' TERM INT HUP; echo $$ >id$KINDLING_RANK; exec sleep 60", 3));
  });
  wait_until([&] { return have("id", 3); });
  launcher.send(SIGKILL);
  for (int rank = 0; rank < 3; ++rank) wait_until([&] { return has_ended(id(rank)); });
}

TEST_F(LocalLaunchTest, ReturnsTheCodeOfTheLostProcessNotOfItsPeers) {
  Launcher launcher([&] {
    return run_local_processes(
        script("echo $$ >id$KINDLING_RANK; while ! [ -e go ]; do sleep 0.01; done\n"
               "[ $KINDLING_RANK = 2 ] && kill -KILL $$; exit 1",
               3));
  });
  wait_until([&] { return have("id", 3); });
  launcher.send(SIGSTOP);  // sees all ends at once
  touch("go");
  for (int rank = 0; rank < 3; ++rank) wait_until([&] { return process_state(id(rank)) == "Z"; });
  launcher.send(SIGCONT);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
}

TEST_F(LocalLaunchTest, WaitsForAMoreSpecificExitCode) {
  EXPECT_EQ(run_local_processes(
                scripts("exit 1", "sleep 0.2; [ $KINDLING_RANK = 1 ] && exit 3; sleep 0.2; exit 4", 60)),
            3);
  EXPECT_EQ(run_local_processes(scripts("exit 5", "sleep 0.1; exit 3", 60)), 5);
  // The exit code of a process that was asked to leave does not count.
  EXPECT_EQ(run_local_processes(scripts("exit 1", "exec sleep 60")), 1);
}

TEST_F(LocalLaunchTest, GivesInputAndOutputToRankZeroAlone) {
  std::ofstream(scratch_ / "input") << "one\ntwo\n";
  Launcher launcher([&] {
    const auto lead = [&](int descriptor, const char* name, int flags) {
      const int file = ::open((scratch_ / name).c_str(), flags, 0666);
      return file >= 0 && ::dup2(file, descriptor) == descriptor;
    };
    if (!lead(STDIN_FILENO, "input", O_RDONLY) ||
        !lead(STDOUT_FILENO, "output", O_WRONLY | O_CREAT | O_APPEND) ||
        !lead(STDERR_FILENO, "errors", O_WRONLY | O_CREAT | O_APPEND))
      return 99;
    return run_local_processes(
        script("while read line; do echo rank $KINDLING_RANK read $line; done\n"
               "echo rank $KINDLING_RANK ends; echo error $KINDLING_RANK >&2",
               2));
  });
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(text("output"), "rank 0 read one\nrank 0 read two\nrank 0 ends\n");
  const std::string errors = text("errors");
  EXPECT_TRUE(errors == "error 0\nerror 1\n" || errors == "error 1\nerror 0\n") << errors;
}

extern "C" void do_nothing(int) {}

TEST_F(LocalLaunchTest, PutsHandlersBack) {
  struct sigaction own {
  }, former[4];
  own.sa_handler = do_nothing;
  const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};
  for (int i = 0; i < 4; ++i) ::sigaction(signals[i], &own, &former[i]);
  EXPECT_EQ(run_local_processes(script("exit 0", 2)), 0);
  for (int i = 0; i < 4; ++i) {
    struct sigaction now {};
    ::sigaction(signals[i], &former[i], &now);
    EXPECT_EQ(now.sa_handler, do_nothing) << signals[i];
  }
}

TEST_F(LocalLaunchTest, StartsProgramsWithDefaultSignalHandling) {
  ::signal(SIGUSR2, SIG_IGN);  // what is not the launcher's stays
  const LocalLaunch launch = script("sed -n '/^Sig[BIC]/p' /proc/self/status >signals$KINDLING_RANK", 2);
  EXPECT_EQ(run_local_processes(launch), 0);
  ::signal(SIGUSR2, SIG_DFL);
  std::istringstream stream(text("signals1"));
  std::string name, blocked, ignored, caught;
  stream >> name >> blocked >> name >> ignored >> name >> caught;
  const auto bit = [](int signal) { return std::uint64_t{1} << (signal - 1); };
  EXPECT_EQ(std::stoull(blocked, nullptr, 16), 0u);
  EXPECT_EQ(std::stoull(ignored, nullptr, 16), bit(SIGUSR2) | bit(SIGTTOU));
  EXPECT_EQ(std::stoull(caught, nullptr, 16), 0u);
}

TEST_F(LocalLaunchTest, RefusesWhatCannotBeStarted) {
  const auto refusal = [&](const LocalLaunch& launch) {
    return error_text<Error>([&] { run_local_processes(launch); });
  };
  EXPECT_EQ(refusal({}), "LocalLaunch::command: it is empty; expected: a program");
  EXPECT_EQ(refusal({.command = {"x"}, .num_processes = 0}),
            "LocalLaunch::num_processes: it is 0; expected: 1 to 1024");
  EXPECT_EQ(refusal({.command = {"x"}, .num_processes = 2, .grace_s = -1}),
            "LocalLaunch::grace_s: it is -1; expected: 0 to 86400");
  EXPECT_EQ(refusal({.command = {"x"}, .num_processes = 2, .max_restarts = -1}),
            "LocalLaunch::max_restarts: it is -1; expected: 0 or more");
  EXPECT_EQ(refusal({.command = {"x"}, .num_processes = 2, .end_timeout_s = -1}),
            "LocalLaunch::end_timeout_s: it is -1; expected: 0 to 1000000000");
  EXPECT_EQ(refusal({.command = {"/no/such/program", "x"}, .num_processes = 2}),
            "/no/such/program: it cannot be run: No such file or directory; check that the program exists "
            "and is executable");
  expect_no_children();
}

TEST_F(LocalLaunchTest, IsOneAtATime) {
  std::thread other([&] {
    wait_until([&] { return have("id", 2); });
    EXPECT_EQ(error_text<Error>([&] { run_local_processes(script("touch wrong", 1)); }),
              "launch: this process has another launch running; expected: one launch at a time; wait until "
              "it ends");
    touch("go");
  });
  EXPECT_EQ(
      run_local_processes(script("echo $$ >id$KINDLING_RANK; while ! [ -e go ]; do sleep 0.01; done", 2)), 0);
  other.join();
  EXPECT_FALSE(has("wrong"));
}

// As when the next one cannot be started.
TEST(ChildProcess, IsKilledWhenItsOwnerGivesUp) {
  const ForwardedSignals signals;
  pid_t id = 0;
  {
    const ChildProcess child({.program = "/bin/sleep", .command = {"sleep", "60"}}, signals);
    id = child.id();
    EXPECT_FALSE(has_ended(id));
  }
  EXPECT_EQ(process_state(id), "");
}

}  // namespace
}  // namespace kindling
