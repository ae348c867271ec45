#include "launch/slurm_job.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "base/file_descriptor.h"
#include "launch/variable_reader.h"

namespace kindling {
namespace {

constexpr int kCannotRun = 127;

// Starts a program of the PATH with both output streams in `output`. Signals that would end it stay pending.
int spawn(std::vector<std::string> words, int output, pid_t& process) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    ::posix_spawn_file_actions_adddup2(&files, output, stream);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&blocked, signal);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &blocked);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = ::posix_spawnp(&process, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error;
}

CommandAnswer cannot_run(int error) {
  return {.exit_code = kCannotRun,
          .text = "scontrol cannot be run: " + std::generic_category().message(error)};
}

}  // namespace

std::optional<SlurmJob> slurm_job(const Variables& variables) {
  const VariableReader read(variables);
  const auto id = read.text("SLURM_JOB_ID");
  if (!id) return std::nullopt;
  SlurmJob job{.id = *id, .number = *id};
  // The number of one task is also that of the whole array, all of whose tasks scontrol would requeue.
  const auto array = read.text("SLURM_ARRAY_JOB_ID"), task = read.text("SLURM_ARRAY_TASK_ID");
  if (array && task) {
    job.id = *array + "_" + *task;
    job.array_task = *task;
  }
  job.restart_count = read.integer("SLURM_RESTART_COUNT", 0, kMaxRanks).value_or(0);
  return job;
}

std::optional<SlurmJob> slurm_job() {
  return slurm_job([](const char* name) -> const char* { return std::getenv(name); });
}

CommandAnswer run_scontrol(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"scontrol"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return cannot_run(errno);
  pid_t process = 0;
  const int error = spawn(std::move(words), ends[1], process);
  ::close(ends[1]);
  CommandAnswer answer;
  std::array<char, 4096> part{};
  for (ssize_t count = 1; error == 0 && count > 0;) {
    count = without_interruptions([&] { return ::read(ends[0], part.data(), part.size()); });
    if (count > 0) answer.text.append(part.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  if (error != 0) return cannot_run(error);
  int status = 0;
  if (without_interruptions([&] { return ::waitpid(process, &status, 0); }) != process)
    return cannot_run(errno);  // its end is unknown
  answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

std::string scontrol_line(const std::string& text, const std::string& number) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("JobId=" + number + " ")) return line;
  return "";
}

std::string scontrol_field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string padded = " " + line;
    std::size_t at = padded.find(" " + name + "=");
    if (at != std::string::npos) {  // NAME=VALUE NAME=VALUE
      at += name.size() + 2;
      return padded.substr(at, padded.find(' ', at) - at);
    }
    at = line.find(" = ");
    if (!line.starts_with(name) || at == std::string::npos) continue;
    if (line.find_first_not_of(' ', name.size()) == at + 1) return line.substr(at + 3);
  }
  return "";
}

}  // namespace kindling
