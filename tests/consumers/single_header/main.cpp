#include <kindling/formats/safetensors.h>

#include <iostream>

// Reads a tensor's shape with one header of Kindling, which does not need LibTorch.
int main() {
  const float values[6] = {1, 2, 3, 4, 5, 6};
  const kindling::TensorToWrite weight{
      .name = "weight", .shape = {2, 3}, .data = values, .size_bytes = sizeof values};
  const auto file = kindling::parse_safetensors(kindling::serialize_safetensors({&weight, 1}, {}), "memory");
  const auto* entry = file.find("weight");
  if (entry == nullptr) return 1;
  std::cout << entry->shape.at(0) << " x " << entry->shape.at(1) << "\n";
}
