#include "device/cuda_order.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <sstream>

namespace kindling {
namespace {

// Domain, bus and device: NVML writes the domain with eight digits, CUDA with four.
std::array<unsigned, 3> pci_numbers(const std::string& bus_id) {
  std::array<unsigned, 3> numbers{};
  std::sscanf(bus_id.c_str(), "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]);
  return numbers;
}

// The bus ids of the driver's devices in their order; nullopt: the driver has not been started.
std::optional<std::vector<std::string>> bus_ids_of_driver(const char* path) {
  using GetCount = int (*)(int*);
  using Get = int (*)(int*, int);
  using GetBusId = int (*)(char*, int, int);
  void* library = ::dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  const auto get_count = reinterpret_cast<GetCount>(::dlsym(library, "cuDeviceGetCount"));
  const auto get = reinterpret_cast<Get>(::dlsym(library, "cuDeviceGet"));
  const auto get_bus_id = reinterpret_cast<GetBusId>(::dlsym(library, "cuDeviceGetPCIBusId"));
  std::optional<std::vector<std::string>> ids;
  int count = 0;
  if (get_count != nullptr && get != nullptr && get_bus_id != nullptr && get_count(&count) == 0) {
    ids.emplace();
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      std::array<char, 32> id{};
      int device = 0;
      if (get(&device, ordinal) == 0) get_bus_id(id.data(), static_cast<int>(id.size() - 1), device);
      ids->emplace_back(id.data());
    }
  }
  ::dlclose(library);
  return ids;
}

// The card that one entry of CUDA_VISIBLE_DEVICES names: its number, or the beginning of one card's UUID.
std::optional<std::size_t> card_named(const std::string& entry, std::span<const CardInfo> cards) {
  std::string name;
  std::istringstream(entry) >> name;  // spaces around it do not count
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (name != std::to_string(i) && !(name.starts_with("GPU-") && cards[i].uuid.starts_with(name))) continue;
    if (found) return std::nullopt;  // two begin so
    found = i;
  }
  return found;
}

}  // namespace

std::optional<CudaOrder> cuda_order_of_driver(std::span<const CardInfo> cards, const char* library) {
  const auto ids = bus_ids_of_driver(library);
  if (!ids) return std::nullopt;
  CudaOrder order(cards.size());
  for (std::size_t i = 0; i < cards.size(); ++i)
    for (std::size_t ordinal = ids->size(); ordinal-- > 0;)  // the first of several slices of a card stays
      if (!cards[i].pci_bus_id.empty() && pci_numbers((*ids)[ordinal]) == pci_numbers(cards[i].pci_bus_id))
        order[i] = static_cast<std::int64_t>(ordinal);
  return order;
}

CudaOrder cuda_order_of_list(std::span<const CardInfo> cards, const char* visible) {
  CudaOrder order(cards.size());
  std::int64_t next = 0;
  if (visible == nullptr) {
    for (auto& number : order) number = next++;
    return order;
  }
  std::istringstream entries(visible);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto card = card_named(entry, cards);
    if (!card) break;
    if (order[*card]) return CudaOrder(cards.size());
    order[*card] = next++;
  }
  return order;
}

}  // namespace kindling
