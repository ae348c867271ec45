#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "bindings/call.h"

namespace kindling::bindings {

// The objects of one kind behind opaque handles. A handle is a number, not an address: a freed or foreign one
// is found to be so. Its bits: the kind, the index of a slot, and how often the slot has been used.
template <class Handle, class Object>
class HandleTable {
 public:
  // `name`: of the kind, for errors.
  HandleTable(std::uintptr_t kind, const char* name) : kind_(kind), name_(name) {}

  Handle add(std::shared_ptr<Object> object) {
    const std::unique_lock lock(mutex_);
    std::size_t index = 0;
    while (index < slots_.size() && slots_[index].object) ++index;
    if (index == slots_.size()) slots_.emplace_back();
    Slot& slot = slots_[index];
    ++slot.generation;
    slot.object = std::move(object);
    return reinterpret_cast<Handle>((slot.generation << kGenerationShift) |
                                    (static_cast<std::uintptr_t>(index) << kIndexShift) | kind_);
  }

  // Return the object, which lives at least as long as the result. Throw for a handle that is not in use.
  std::shared_ptr<Object> get(Handle handle, const char* place) const {
    const std::shared_lock lock(mutex_);
    return slots_[index_of(handle, place)].object;
  }
  std::shared_ptr<Object> remove(Handle handle, const char* place) {
    const std::unique_lock lock(mutex_);
    return std::move(slots_[index_of(handle, place)].object);
  }

 private:
  struct Slot {
    std::uintptr_t generation = 0;
    std::shared_ptr<Object> object{};
  };
  static constexpr unsigned kIndexShift = 3, kGenerationShift = 24;
  static constexpr std::uintptr_t kKindMask = (1U << kIndexShift) - 1,
                                  kIndexMask = (1U << (kGenerationShift - kIndexShift)) - 1;

  std::size_t index_of(Handle handle, const char* place) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(handle);
    const std::string name = std::string("the ") + name_;
    if (bits == 0) refuse_use(place, name + " is null", "a " + std::string(name_) + " that has been made");
    const std::size_t index = (bits >> kIndexShift) & kIndexMask;
    const std::uintptr_t generation = bits >> kGenerationShift;
    if ((bits & kKindMask) != kind_ || index >= slots_.size() || generation == 0 ||
        generation > slots_[index].generation)
      refuse_use(place, name + " is not a handle of a " + name_, "a handle from this library");
    if (generation < slots_[index].generation || !slots_[index].object)
      refuse_use(place, name + " has been freed", "a handle that is in use");
    return index;
  }

  const std::uintptr_t kind_;
  const char* const name_;
  mutable std::shared_mutex mutex_;
  std::vector<Slot> slots_;
};

}  // namespace kindling::bindings
