#include "kindling/base/log.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/base_sink.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/logging.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// Shared pointers, so that logging a message keeps the state alive while another thread replaces it.
struct LogState {
  std::mutex mutex;
  LogLevel level = LogLevel::info;
  std::shared_ptr<spdlog::logger> logger;  // null: no stderr and no file
  std::shared_ptr<const LogObserver> observer;
};

LogState& state() {
  static LogState* const instance = new LogState;  // never destroyed, because destructors of statics may log
  return *instance;
}

// In the order of LogLevel.
constexpr spdlog::level::level_enum kSpdlogLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                       spdlog::level::warn, spdlog::level::err};

using ColorSink = spdlog::sinks::ansicolor_stderr_sink_mt;

class StderrSink : public ColorSink {
 public:
  using ColorSink::ColorSink;
  void log(const spdlog::details::log_msg& message) override {
    if (has_stderr_line.exchange(false)) std::fputs(kEraseLine, stderr);
    ColorSink::log(message);
  }
};

spdlog::sink_ptr stderr_sink(bool color, LogLevel level) {
  const auto sink =
      std::make_shared<StderrSink>(color ? spdlog::color_mode::always : spdlog::color_mode::never);
  sink->set_pattern("%^%l:%$ %v");
  sink->set_level(kSpdlogLevels[static_cast<std::size_t>(level)]);
  return sink;
}

// Appends lines to an open file. spdlog's own sink follows symbolic links.
class AppendSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  AppendSink(const std::filesystem::path& file, bool follow_links)
      : file_(file, O_WRONLY | O_CREAT | O_APPEND | (follow_links ? 0 : O_NOFOLLOW)),
        code_(file_.ok() ? 0 : errno) {}

  int code() const { return code_; }  // 0, or the number of the error that opening the file has met

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_all(file_.get(), {line.data(), line.size()});  // a full disk must not end what is logged about
  }
  void flush_() override {}

 private:
  FileDescriptor file_;
  int code_;
};

spdlog::sink_ptr file_sink(const LogOptions& options) {
  std::error_code ignored;
  std::filesystem::create_directories(options.file.parent_path(), ignored);
  auto sink = std::make_shared<AppendSink>(options.file, options.follow_links);
  if (sink->code() == ELOOP && !options.follow_links)
    throw Error({.place = options.file.string(),
                 .found = "the log file is a symbolic link",
                 .wanted = "a file, or none",
                 .remedy = "remove the link: what it leads to would be written"});
  if (sink->code() != 0)
    throw Error({.place = options.file.string(),
                 .found = "the log file cannot be opened: " + std::generic_category().message(sink->code()),
                 .wanted = "",
                 .remedy = "check that its folder exists and is writable"});
  sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  return sink;
}

// Owned here: spdlog's default logger and its registry belong to the host program.
std::shared_ptr<spdlog::logger> make_logger(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (options.to_stderr) sinks.push_back(stderr_sink(options.color, options.stderr_level));
  if (!options.file.empty()) sinks.push_back(file_sink(options));
  if (sinks.empty()) return nullptr;
  auto logger = std::make_shared<spdlog::logger>("kindling", sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::trace);  // log() has checked the levels
  logger->flush_on(spdlog::level::trace);   // messages are few, and the last one before a crash matters most
  logger->set_error_handler([](const std::string&) {});  // a full disk must not cause further messages
  return logger;
}

}  // namespace

void configure_log(const LogOptions& options) {
  std::shared_ptr<spdlog::logger> logger = make_logger(options);
  const std::lock_guard lock(state().mutex);
  state().level = options.level;
  state().logger = std::move(logger);
}

void set_log_observer(LogObserver observer) {
  auto shared = observer ? std::make_shared<const LogObserver>(std::move(observer)) : nullptr;
  const std::lock_guard lock(state().mutex);
  state().observer = std::move(shared);
}

void log(LogLevel level, std::string_view message) {
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<const LogObserver> observer;
  {
    const std::lock_guard lock(state().mutex);
    if (level < state().level || level == LogLevel::off) return;
    logger = state().logger;
    observer = state().observer;
  }
  const spdlog::string_view_t text(message.data(), message.size());
  if (logger) logger->log(kSpdlogLevels[static_cast<std::size_t>(level)], text);
  if (observer) (*observer)(level, std::string(message));
}

}  // namespace kindling
