#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kindling {

// Calls `visit` for each tensor in a value of a module's forward(), in order: a tensor or a vector of
// tensors, or a tuple or an optional of these. Other values contain none.
template <class Visit>
void for_tensors_in(Visit&& visit, auto& value) {
  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, at::Tensor>)
    visit(value);
  else if constexpr (requires { value.has_value(); })
    value ? for_tensors_in(visit, *value) : void();
  else if constexpr (requires { value.begin()->defined(); })
    for (auto& part : value) for_tensors_in(visit, part);
  else if constexpr (requires { std::tuple_size<std::remove_cvref_t<decltype(value)>>::value; })
    std::apply([&](auto&... parts) { (for_tensors_in(visit, parts), ...); }, value);
}

// A tensor, or a tuple of tensors and such tuples: the number of tensors is known at compile time.
template <class Value>
inline constexpr bool kIsTensors = std::is_same_v<Value, at::Tensor>;
template <class... Values>
inline constexpr bool kIsTensors<std::tuple<Values...>> = (kIsTensors<Values> && ...);

// Returns all tensors in a value.
template <class Value>
std::vector<at::Tensor> tensors_in(const Value& value) {
  std::vector<at::Tensor> tensors;
  for_tensors_in([&](const at::Tensor& tensor) { tensors.push_back(tensor); }, value);
  return tensors;
}

// Sets the tensors of a value in the same order; undefined ones if there are too few.
template <class Value>
void put_tensors(const std::vector<at::Tensor>& tensors, Value& value) {
  std::size_t next = 0;
  for_tensors_in([&](at::Tensor& tensor) { tensor = next < tensors.size() ? tensors[next++] : at::Tensor(); },
                 value);
}

}  // namespace kindling
