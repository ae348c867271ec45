#include "training/host_wait_watch.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace kindling {
namespace {

// Their results, or the shapes of them, depend on values that the host must know.
constexpr std::array<std::string_view, 9> kWaitingOperators = {
    "aten::item",    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
    "aten::nonzero", "aten::masked_select",       "aten::_unique2",   "aten::bincount",
    "aten::allclose"};

thread_local HostWaitWatch* current_watch = nullptr;

}  // namespace

HostWaitWatch::HostWaitWatch()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&HostWaitWatch::on_operator).scopes({at::RecordScope::FUNCTION}))) {
  current_watch = this;
}

HostWaitWatch::~HostWaitWatch() {
  at::removeCallback(handle_);
  current_watch = nullptr;
}

std::unique_ptr<at::ObserverContext> HostWaitWatch::on_operator(const at::RecordFunction& call) {
  const bool waits =
      std::ranges::find(kWaitingOperators, std::string_view(call.name())) != kWaitingOperators.end();
  if (waits && current_watch != nullptr && current_watch->found_.empty()) current_watch->found_ = call.name();
  return nullptr;
}

}  // namespace kindling
