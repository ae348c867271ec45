#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kindling {

// The code of the program, which these tests link, ignores some signals from the start. Child processes would
// inherit that.
inline const bool kHasDefaultSignals = [] {
  for (const int signal : {SIGUSR1, SIGPIPE, SIGXFSZ, SIGHUP}) ::signal(signal, SIG_DFL);
  return true;
}();

// Processes of a CUDA build of LibTorch take gigabytes of address space, with or without a GPU.
inline bool has_cuda_libraries() { return ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr; }

// True once the program ignores or handles signals that would end it: the last of them is SIGXFSZ. The loader
// sees to that before it runs any other code of the program.
inline bool survives_early_signals(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  if (!status) return true;
  for (std::string name, value; status >> name && std::getline(status, value);)
    if ((name == "SigIgn:" || name == "SigCgt:") &&
        (std::stoull(value, nullptr, 16) >> (SIGXFSZ - 1) & 1) != 0)
      return true;
  return false;
}

// The real program in a separate process. Its output goes to a file.
class Process {
 public:
  Process(std::vector<std::string> words, const std::filesystem::path& output,
          const std::filesystem::path& folder = ".", rlim_t max_memory = RLIM_INFINITY) {
    words.insert(words.begin(), KINDLING_PROGRAM);
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::filesystem::remove(output);  // so that it contains only the output of this process
    pid_ = fork();
    if (pid_ != 0) return;
    const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    const rlimit limit{.rlim_cur = max_memory, .rlim_max = max_memory};
    if (max_memory != RLIM_INFINITY) setrlimit(RLIMIT_AS, &limit);
    if (chdir(folder.c_str()) == 0) execv(argv[0], argv.data());
    _exit(127);
  }
  ~Process() {
    send(SIGKILL);
    wait();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return pid_; }
  void send(int signal) {
    if (is_running()) kill(pid_, signal);
  }
  bool is_running() {
    if (exit_code_ < 0) take_status(WNOHANG);
    return exit_code_ < 0;
  }
  // As in a shell: 128 + signal number if a signal ended it.
  int wait() {
    if (exit_code_ < 0) take_status(0);
    return exit_code_;
  }
  // Waits until a condition is true or the process has ended.
  template <class Condition>
  void wait_until(Condition condition) {
    while (!condition() && is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  void take_status(int options) {
    int status = 0;
    if (waitpid(pid_, &status, options) != pid_) return;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t pid_ = 0;
  int exit_code_ = -1;
};

// Runs the program and returns its exit code.
inline int run_process(std::vector<std::string> words, const std::filesystem::path& output,
                       const std::filesystem::path& folder = ".") {
  return Process(std::move(words), output, folder).wait();
}

// The ids of the processes that a launcher has started.
inline std::vector<pid_t> children_of(pid_t launcher) {
  const std::string id = std::to_string(launcher);
  std::ifstream ids("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; ids >> child;) children.push_back(child);
  return children;
}

}  // namespace kindling
