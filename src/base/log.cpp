#include "kindling/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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

spdlog::sink_ptr stderr_sink(bool color, LogLevel level) {
  const auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(
      color ? spdlog::color_mode::always : spdlog::color_mode::never);
  sink->set_pattern("%^%l:%$ %v");
  sink->set_level(kSpdlogLevels[static_cast<std::size_t>(level)]);
  return sink;
}

spdlog::sink_ptr file_sink(const std::filesystem::path& file) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
    sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
    return sink;
  } catch (const spdlog::spdlog_ex& error) {
    throw Error({.place = file.string(),
                 .found = std::string("the log file cannot be opened (") + error.what() + ")",
                 .wanted = "",
                 .remedy = "check that its folder exists and is writable"});
  }
}

// Owned here: spdlog's default logger and its registry belong to the host program.
std::shared_ptr<spdlog::logger> make_logger(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (options.to_stderr) sinks.push_back(stderr_sink(options.color, options.stderr_level));
  if (!options.file.empty()) sinks.push_back(file_sink(options.file));
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
