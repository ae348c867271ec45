#pragma once

#include <cstdint>
#include <vector>

// Max pooling of images to the bits of LibTorch's, which goes number by number through planes and through the
// channels that do not fill a register. Here four lanes and more go side by side: channels that lie next to
// each other, or planes.
namespace kindling::fast {

// Height or width of the images, and of the windows.
struct PoolingAxis {
  std::int64_t size, out_size, kernel, stride, padding, dilation;
};

// Which numbers of an image the windows cover. A place is a row times the width, plus a column.
struct PoolingWindows {
  PoolingWindows(const PoolingAxis& rows, const PoolingAxis& columns);

  struct Window {
    std::int32_t first;  // place
    std::int32_t shape;
  };
  std::vector<Window> windows;                    // row by row
  std::vector<std::vector<std::int32_t>> shapes;  // places behind the first one, which is 0
  bool has_empty = false;                         // one that lies beside the image
};

struct PoolingImages {
  std::int64_t batch, channels, num_places, num_windows;
  bool is_channels_last;  // else plane by plane
};
constexpr std::int64_t kFewestPoolingLanes = 4;  // channels, or else planes

// T: float, or std::uint16_t for the bits of a bfloat16. `indices`: the places of the largest numbers. Says
// false where there is a bfloat16 that is no number, since what LibTorch makes of its bits depends on the
// processor.
template <class T>
bool max_pool(const PoolingWindows& windows, const PoolingImages& images, const T* x, T* out,
              std::int64_t* indices);

// Of bfloat16, whose sums cost LibTorch more than all else. Says false where there is a sum of more than one
// number, a number that is none, or one that a processor may count as 0: results are then not LibTorch's.
bool max_pool_backward(const PoolingImages& images, const std::uint16_t* gradient,
                       const std::int64_t* indices, std::uint16_t* x_gradient);

}  // namespace kindling::fast
