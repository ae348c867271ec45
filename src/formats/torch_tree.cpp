#include "formats/torch_tree.h"

#include "formats/pickle_text.h"
#include "formats/zip_writer.h"

namespace kindling {
namespace {

// A leaf's storage is the leaf's place.
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
