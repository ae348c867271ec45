#include "formats/torch/pickle_text.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "formats/tensor_types.h"
#include "formats/torch/pickle_names.h"
#include "formats/zip/zip_writer.h"

namespace kindling {
namespace {

std::string pickled_bytes(std::uint64_t number, std::size_t size) {
  std::string bytes;
  for (; size > 0; --size, number >>= 8) bytes += static_cast<char>(number & 0xff);
  return bytes;
}

std::vector<std::int64_t> strides_in_row_order(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

}  // namespace

std::string pickled_integer(std::int64_t number) {  // LONG1
  return "\x8a\x08" + pickled_bytes(static_cast<std::uint64_t>(number), 8);
}
std::string pickled_real(double number) {  // BINFLOAT, the only big-endian instruction
  std::string bytes = pickled_bytes(std::bit_cast<std::uint64_t>(number), 8);
  std::ranges::reverse(bytes);
  return "G" + bytes;
}
std::string pickled_text(std::string_view text) {  // BINUNICODE
  return "X" + pickled_bytes(text.size(), 4) + std::string(text);
}
std::string pickled_name(std::string_view module_and_name) {  // GLOBAL
  std::string lines(module_and_name);
  std::ranges::replace(lines, ' ', '\n');
  return "c" + lines + "\n";
}
std::string pickled_tuple(std::span<const std::int64_t> numbers) {
  std::string items = "(";
  for (const std::int64_t number : numbers) items += pickled_integer(number);
  return items + "t";
}

std::string pickled_tensor_of(const TensorToWrite& tensor, std::size_t storage) {
  const std::size_t values = tensor.size_bytes / size_of(tensor.type);
  return pickled_name(kRebuildTensor) + "((" + pickled_text("storage") +
         pickled_name(row_of(tensor.type).storage) + pickled_text(std::to_string(storage)) +
         pickled_text("cpu") + pickled_integer(static_cast<std::int64_t>(values)) + "tQ" +
         pickled_integer(0) + pickled_tuple(tensor.shape) +
         pickled_tuple(strides_in_row_order(tensor.shape)) + "\x89" + pickled_name(kOrderedDict) + ")RtR";
}

namespace {

// A leaf's storage is the leaf's index.
std::string pickled_tree(const ProgramTree& tree, std::span<const TensorToWrite> leaves, std::size_t& leaf) {
  using Kind = ProgramTree::Kind;
  if (tree.kind == Kind::leaf) {
    const std::size_t place = leaf++;
    return pickled_tensor_of(leaves[place], place);
  }
  std::string parts;
  for (std::size_t i = 0; i < tree.parts.size(); ++i) {
    if (tree.kind == Kind::dict) parts += pickled_text(tree.names[i]);
    parts += pickled_tree(tree.parts[i], leaves, leaf);
  }
  if (tree.kind == Kind::tuple) return "(" + parts + "t";                  // MARK, TUPLE
  return (tree.kind == Kind::dict ? "}(" : "](") + parts +                 // EMPTY_DICT or EMPTY_LIST, MARK
         (tree.kind == Kind::dict ? std::string("u") : std::string("e"));  // SETITEMS or APPENDS
}

}  // namespace

std::string torch_file_of(const ProgramTree& tree, std::span<const TensorToWrite> leaves) {
  std::size_t leaf = 0;
  const std::string pickle = "\x80\x02" + pickled_tree(tree, leaves, leaf) + ".";
  ZipWriter archive;
  archive.add("archive/data.pkl", pickle);
  archive.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < leaves.size(); ++i)
    archive.add("archive/data/" + std::to_string(i),
                {static_cast<const char*>(leaves[i].data), leaves[i].size_bytes});
  archive.add("archive/version", "3\n");
  std::string bytes;
  for (const std::string_view piece : archive.finish()) bytes += piece;
  return bytes;
}

}  // namespace kindling
