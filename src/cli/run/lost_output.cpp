#include "cli/run/lost_output.h"

#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <system_error>

#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

bool is_loss_reported = false;

const char* remedy_of(int code) {
  if (code == EPIPE || code == EIO) return "keep its reader running, or redirect it to a file";
  return code == EFBIG ? "raise the limit (ulimit -f), or redirect it elsewhere"
                       : "free some space, or redirect it elsewhere";
}

}  // namespace

std::string lost_output_text() {
  if (std::cout.flush()) return {};
  // The error number may be overwritten by now; another write fails for the same reason.
  const int code = ::write(STDOUT_FILENO, "\n", 1) < 0 ? errno : 0;
  return Error({.place = "stdout",
                .found = "cannot write the output: " +
                         (code != 0 ? std::generic_category().message(code) : "some of it was lost"),
                .remedy = remedy_of(code)})
      .what();
}

void report_lost_output() {
  if (is_loss_reported) return;
  const std::string text = lost_output_text();
  if (text.empty()) return;
  is_loss_reported = true;
  log_error(text + "; training continues without it, and the exit code will be 1");
}

bool has_reported_lost_output() noexcept { return is_loss_reported; }

void forget_lost_output() noexcept {
  is_loss_reported = false;
  std::cout.clear();
}

}  // namespace kindling
