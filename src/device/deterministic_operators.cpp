#include "device/deterministic_operators.h"

#include <ATen/Context.h>

#include "device/shared_setting.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

struct DeterminismSetting {
  bool is_on = false, only_warns = false;
};

SharedSetting<DeterminismSetting>& determinism() {
  static SharedSetting<DeterminismSetting> setting(
      [] {
        const at::Context& context = at::globalContext();
        return DeterminismSetting{context.deterministicAlgorithms(),
                                  context.deterministicAlgorithmsWarnOnly()};
      },
      [](const DeterminismSetting& wanted) {
        at::globalContext().setDeterministicAlgorithms(wanted.is_on, wanted.only_warns);
      });
  return setting;
}

}  // namespace

DeterministicOperators::DeterministicOperators(std::string_view mode)
    : is_on_(mode != "false"), only_warns_(mode == "warn") {}

DeterministicOperators::Scope::Scope(DeterministicOperators& operators)
    : operators_(operators), former_handler_(c10::WarningUtils::get_warning_handler()) {
  if (!operators_.is_on_) return;
  ticket_ = determinism().take({.is_on = true, .only_warns = operators_.only_warns_});
  if (former_handler_ != &operators_.warnings_) operators_.warnings_.others = former_handler_;
  c10::WarningUtils::set_warning_handler(&operators_.warnings_);
}

DeterministicOperators::Scope::~Scope() {
  if (!operators_.is_on_) return;
  c10::WarningUtils::set_warning_handler(former_handler_);
  determinism().give_back(ticket_);
}

void DeterministicOperators::Warnings::process(const c10::Warning& warning) {
  const std::string name = nondeterministic_operator(warning.msg());
  if (name.empty()) return others->process(warning);
  if (logged_.insert(name).second)
    log_warning(name + " has no deterministic implementation: results of another run may differ");
}

std::string nondeterministic_operator(std::string_view text) {
  const std::size_t end = text.find(" does not have a deterministic implementation");
  return end == std::string_view::npos ? std::string() : std::string(text.substr(0, end));
}

}  // namespace kindling
