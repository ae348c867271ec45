#include "interop/run/listed_operators.h"

#include <string>
#include <unordered_set>

namespace kindling {
namespace {

// The ATen operators that compute tensors from tensors and numbers. The list excludes operators that read or
// write files, use foreign memory, change the metadata of a tensor rather than its values, return values to
// the host, or are for other than dense tensors. Those whose results have a size that depends on values, such
// as masked_select, wait for the device.
constexpr std::string_view kListed =
    "__and__ __iand__ __ior__ __ixor__ __lshift__ __or__ __rshift__ __xor__ _adaptive_avg_pool2d _grouped_mm "
    "_adaptive_avg_pool3d _conj _convolution _embedding_bag _embedding_bag_forward_only _fft_c2c _fft_c2r "
    "_fft_r2c _log_softmax _native_batch_norm_legit_no_training _reshape_copy _safe_softmax "
    "_scaled_dot_product_flash_attention_for_cpu _shape_as_tensor _softmax _to_copy _trilinear _unsafe_view "
    "_weight_norm _weight_norm_interface abs abs_ absolute absolute_ acos acos_ acosh acosh_ "
    "adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add "
    "add_ "
    "addbmm addbmm_ addcdiv addcdiv_ addcmul addcmul_ addmm addmm_ addmv addmv_ addr addr_ "
    "affine_grid_generator "
    "alias alias_copy all alpha_dropout alpha_dropout_ amax amin aminmax angle any arange arccos arccos_ "
    "arccosh "
    "arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argmax argmin "
    "argsort as_strided as_strided_ as_strided_copy as_strided_scatter asin asin_ asinh asinh_ atan atan2 "
    "atan2_ "
    "atan_ atanh atanh_ atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d baddbmm baddbmm_ "
    "bartlett_window batch_norm bernoulli bernoulli_ bilinear binary_cross_entropy "
    "binary_cross_entropy_with_logits binomial bitwise_and bitwise_and_ bitwise_left_shift "
    "bitwise_left_shift_ "
    "bitwise_not bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor "
    "bitwise_xor_ blackman_window block_diag bmm broadcast_tensors broadcast_to bucketize cartesian_prod cat "
    "cauchy cauchy_ cdist ceil ceil_ celu celu_ chain_matmul channel_shuffle cholesky cholesky_solve chunk "
    "clamp "
    "clip clip_ clone col2im column_stack combinations complex concat concatenate conj conj_physical "
    "conj_physical_ constant_pad_nd contiguous conv1d conv2d conv3d conv_depthwise3d conv_tbc "
    "conv_transpose1d "
    "conv_transpose2d conv_transpose3d convolution copy_ copysign copysign_ corrcoef cos cos_ cosh cosh_ "
    "cosine_embedding_loss cosine_similarity cov cross cross_entropy_loss ctc_loss cummax cummin cumprod "
    "cumprod_ "
    "cumsum cumsum_ cumulative_trapezoid deg2rad deg2rad_ det detach detach_ detach_copy diag diag_embed "
    "diagflat "
    "diagonal diagonal_copy diagonal_scatter diff digamma digamma_ dist div div_ divide divide_ dot dropout "
    "dropout_ dsplit dstack einsum elu elu_ embedding embedding_bag empty empty_like empty_strided eq eq_ "
    "erf "
    "erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expand expand_as expand_copy expm1 expm1_ "
    "exponential "
    "exponential_ eye feature_alpha_dropout feature_alpha_dropout_ feature_dropout feature_dropout_ fft_fft "
    "fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn "
    "fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 "
    "fft_rfftfreq fft_rfftn fill fill_ fill_diagonal_ fix fix_ flatten flip fliplr flipud float_power "
    "float_power_ floor floor_ floor_divide floor_divide_ fmax fmin fmod fmod_ frac frac_ "
    "fractional_max_pool2d "
    "fractional_max_pool3d frobenius_norm full full_like gather gcd ge ge_ gelu gelu_ geometric geometric_ "
    "geqrf "
    "ger glu greater greater_ greater_equal_ grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru "
    "gru_cell "
    "gt gt_ hamming_window hann_window hardshrink hardsigmoid hardsigmoid_ hardswish hardswish_ hardtanh "
    "hardtanh_ heaviside heaviside_ hinge_embedding_loss histc hsplit hstack huber_loss hypot hypot_ i0 i0_ "
    "igamma igamma_ igammac igammac_ im2col imag index index_add index_add_ index_copy index_copy_ "
    "index_fill "
    "index_fill_ index_put index_put_ index_reduce index_reduce_ index_select indices_copy inner "
    "instance_norm "
    "inverse isclose isfinite isin isinf isnan isneginf isposinf isreal kaiser_window kl_div kron kthvalue "
    "l1_loss layer_norm lcm lcm_ ldexp ldexp_ le le_ leaky_relu leaky_relu_ lerp lerp_ less less_ "
    "less_equal_ "
    "lgamma lgamma_ lift_fresh lift_fresh_copy linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross "
    "linalg_det linalg_diagonal linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh "
    "linalg_householder_product "
    "linalg_inv linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu "
    "linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matmul linalg_matrix_exp linalg_matrix_norm "
    "linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_pinv linalg_qr "
    "linalg_slogdet "
    "linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv "
    "linalg_tensorsolve linalg_vander linalg_vecdot linalg_vector_norm linear linspace log log10 log10_ "
    "log1p "
    "log1p_ log2 log2_ log_ log_normal log_normal_ log_sigmoid log_sigmoid_forward log_softmax logaddexp "
    "logaddexp2 logcumsumexp logdet logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ "
    "logical_xor logical_xor_ logit logit_ logspace logsumexp lstm lstm_cell lt lt_ lu_solve lu_unpack mH mT "
    "margin_ranking_loss masked_fill masked_fill_ masked_scatter masked_scatter_ matmul matrix_H matrix_exp "
    "matrix_power max max_pool1d max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices "
    "max_unpool2d max_unpool3d maximum mean median meshgrid min minimum mish mish_ mm mode moveaxis movedim "
    "mse_loss msort mul mul_ multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward "
    "multinomial "
    "multiply multiply_ mv mvlgamma mvlgamma_ nanmean nanmedian nanquantile nansum narrow narrow_copy "
    "native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm ne ne_ neg "
    "neg_ "
    "negative negative_ new_empty new_empty_strided new_full new_ones new_zeros nextafter nextafter_ "
    "nll_loss "
    "nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd norm normal normal_ normal_functional "
    "not_equal_ "
    "nuclear_norm numpy_T one_hot ones ones_like orgqr ormqr outer pad pad_sequence pairwise_distance pdist "
    "permute permute_copy pinverse pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar polygamma "
    "polygamma_ positive pow pow_ prelu prod put put_ qr quantile rad2deg rad2deg_ rand rand_like randint "
    "randint_like randn randn_like random random_ randperm range ravel real reciprocal reciprocal_ "
    "reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 relu6_ relu_ remainder remainder_ renorm "
    "renorm_ repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape "
    "reshape_as "
    "resolve_conj resolve_neg rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 round round_ "
    "row_stack rrelu rrelu_ rrelu_with_noise rrelu_with_noise_ rsqrt rsqrt_ rsub scalar_tensor "
    "scaled_dot_product_attention scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ "
    "searchsorted select select_copy select_scatter selu selu_ sgn sgn_ sigmoid sigmoid_ sign sign_ signbit "
    "silu "
    "silu_ sin sin_ sinc sinc_ sinh sinh_ slice slice_copy slice_scatter slogdet slow_conv3d "
    "slow_conv3d_forward "
    "slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss "
    "soft_margin_loss softmax softplus softshrink sort special_airy_ai special_bessel_j0 special_bessel_j1 "
    "special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u "
    "special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_digamma special_entr special_erf "
    "special_erfc special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_gammainc "
    "special_gammaincc special_gammaln special_hermite_polynomial_h special_hermite_polynomial_he special_i0 "
    "special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p "
    "special_log1p "
    "special_log_ndtr special_log_softmax special_logit special_logsumexp special_modified_bessel_i0 "
    "special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_multigammaln "
    "special_ndtr special_ndtri special_polygamma special_psi special_round "
    "special_scaled_modified_bessel_k0 "
    "special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t "
    "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v "
    "special_shifted_chebyshev_polynomial_w special_sinc special_softmax special_spherical_bessel_j0 "
    "special_xlog1py special_xlogy special_zeta split split_copy split_with_sizes split_with_sizes_copy sqrt "
    "sqrt_ square square_ squeeze squeeze_ squeeze_copy stack std std_mean stft sub sub_ subtract subtract_ "
    "sum "
    "svd swapaxes swapaxes_ swapdims swapdims_ t t_ t_copy take take_along_dim tan tan_ tanh tanh_ "
    "tensor_split "
    "tensordot thnn_conv2d threshold threshold_ tile to topk trace transpose transpose_ transpose_copy "
    "trapezoid "
    "trapz triangular_solve tril tril_ triplet_margin_loss triu triu_ true_divide true_divide_ trunc trunc_ "
    "type_as unbind unbind_copy unflatten unfold unfold_copy uniform uniform_ unsafe_chunk unsafe_split "
    "unsafe_split_with_sizes unsqueeze unsqueeze_ unsqueeze_copy upsample_bicubic2d upsample_bilinear2d "
    "upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d vander "
    "var "
    "var_mean vdot view view_as view_as_complex view_as_complex_copy view_as_real view_as_real_copy "
    "view_copy "
    "vsplit vstack where xlogy xlogy_ zero zero_ zeros zeros_like "
    "_upsample_bicubic2d_aa _upsample_bilinear2d_aa adjoint clamp_ clamp_max clamp_max_ clamp_min clamp_min_ "
    "copy "
    "count_nonzero embedding_renorm_ empty_permuted frexp gcd_ gradient greater_equal istft less_equal lift "
    "nonzero_static norm_except_dim not_equal tril_indices triu_indices nan_to_num nan_to_num_ "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d sum_to_size masked_select "
    "bincount nonzero nonzero_numpy _unique2 unique_consecutive unique_dim ";

std::unordered_set<std::string_view> split_names(std::string_view list) {
  std::unordered_set<std::string_view> names;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = list.find(' ', begin);
    names.insert(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace

const std::unordered_set<std::string_view>& listed_operators() {
  static const std::unordered_set<std::string_view> names = split_names(kListed);
  return names;
}

}  // namespace kindling
