#include "own_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

void start_own_log() {
  spdlog::set_default_logger(spdlog::stdout_logger_st("host"));
  spdlog::set_pattern("%n: %v");
  spdlog::set_level(spdlog::level::warn);
}

void write_to_own_log(const std::string& message) { spdlog::warn(message); }

bool own_log_is_untouched() {
  int num_loggers = 0;
  spdlog::apply_all([&](const std::shared_ptr<spdlog::logger>&) { ++num_loggers; });
  return num_loggers == 1 && spdlog::default_logger()->name() == "host" &&
         spdlog::get_level() == spdlog::level::warn;
}
