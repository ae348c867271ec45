#include "device/random_state.h"

#include <ATen/Context.h>

#include <mutex>

namespace kindling {
namespace {

std::vector<at::Generator> generators_of(Device device) {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(cpu())};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

// FNV-1a.
std::uint64_t hash_of(const at::Tensor& bytes, std::int64_t rank) {
  auto hash = static_cast<std::uint64_t>(rank) ^ 0xcbf29ce484222325U;
  const auto* byte = bytes.const_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < bytes.numel(); ++i) hash = (hash ^ byte[i]) * 0x100000001b3U;
  return hash;
}

}  // namespace

void fork_rng(Device device, std::int64_t rank) {
  if (rank == 0) return;
  for (at::Generator& generator : generators_of(device)) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(hash_of(generator.get_state(), rank));
  }
}

std::vector<at::Tensor> random_state(Device device) {
  std::vector<at::Tensor> state;
  for (at::Generator& generator : generators_of(device)) {
    const std::lock_guard lock(generator.mutex());
    state.push_back(generator.get_state());
  }
  return state;
}

void set_random_state(Device device, const std::vector<at::Tensor>& state) {
  std::vector<at::Generator> generators = generators_of(device);
  for (std::size_t i = 0; i < generators.size() && i < state.size(); ++i) {
    const std::lock_guard lock(generators[i].mutex());
    generators[i].set_state(state[i]);
  }
}

}  // namespace kindling
