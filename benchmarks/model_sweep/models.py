"""The architectures of the sweep: Architecture(name, build), where build() returns a model with random weights and a batch of its inputs.

They are small where the package lets one choose, since what is compared is which operators they have and how these are connected.
"""

import dataclasses
import importlib
from collections.abc import Callable

ROWS = 16


@dataclasses.dataclass
class Architecture:
    name: str
    build: Callable


def image(size, channels=3):
    import torch
    return torch.randn(ROWS, channels, size, size)


def volume(size, channels=1):
    import torch
    return torch.randn(ROWS, channels, size, size, size)


def tokens(length=8, words=50):
    import torch
    return torch.randint(3, words, (ROWS, length))


def timm():
    names = """resnet18 resnetv2_50 densenet121 mobilenetv3_small_050 mobilenetv4_conv_small efficientnet_b0 convnext_atto convnextv2_atto
        swin_tiny_patch4_window7_224 vit_tiny_patch16_224 beit_base_patch16_224 deit_tiny_patch16_224 nf_regnet_b0 nfnet_f0 regnetx_002 regnety_002
        ghostnet_100 mixer_s16_224 resmlp_12_224 gmlp_ti16_224 cait_xxs24_224 pit_ti_224 levit_128s poolformer_s12 edgenext_xx_small
        mobilevit_xxs mobilevitv2_050 xcit_nano_12_p16_224 coat_lite_tiny repvgg_a0 hrnet_w18_small inception_v3 inception_v4 dpn48b vgg11 tinynet_e
        lcnet_035 fastvit_t8 hardcorenas_a skresnet18 selecsls42 rexnet_100 resnest14d eca_resnet33ts seresnet18 xception41 inception_resnet_v2
        nest_tiny pvt_v2_b0 twins_svt_small tresnet_m visformer_tiny repghostnet_050 mvitv2_tiny caformer_s18 cs3darknet_s dla34 vovnet39a
        starnet_s1 efficientvit_b0 focalnet_tiny_srf hiera_tiny_224 convmixer_768_32 sequencer2d_s davit_tiny gcvit_xxtiny""".split()

    def build(name):
        import timm
        for options in ({"img_size": 64}, {}):
            try:
                model = timm.create_model(name, num_classes=5, **options)
                size = 96 if "inception" in name else 64  # its last windows are of the size 3
                return model, image(size if options or not model.default_cfg.get("fixed_input_size") else model.default_cfg["input_size"][1])
            except TypeError:
                pass
            except (AssertionError, ValueError, RuntimeError):
                if not options:
                    raise
        raise ValueError(name)
    return [Architecture(name, lambda name=name: build(name)) for name in names]


def torchvision():
    classifiers = """alexnet vgg11_bn resnet18 resnext50_32x4d wide_resnet50_2 squeezenet1_1 densenet121 mobilenet_v2 mobilenet_v3_small
        shufflenet_v2_x0_5 efficientnet_b0 efficientnet_v2_s regnet_y_400mf convnext_tiny mnasnet0_5 swin_t swin_v2_t""".split()
    segmentation = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large".split()

    def build(name, size, **options):
        import torchvision.models
        return torchvision.models.get_model(name, weights=None, **options), image(size)

    def video():
        import torch
        import torchvision.models
        return torchvision.models.video.r3d_18(num_classes=5), torch.randn(ROWS, 3, 4, 32, 32)
    return ([Architecture(name, lambda name=name: build(name, 64, num_classes=5)) for name in classifiers]
            + [Architecture("vit_b_16", lambda: build("vit_b_16", 32, image_size=32, num_classes=5)), Architecture("r3d_18", video)]
            + [Architecture(name, lambda name=name: build(name, 64, num_classes=5, weights_backbone=None)) for name in segmentation])


def transformers():
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50,
             "max_position_embeddings": 64, "num_labels": 5, "pad_token_id": 0}
    gpt = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    vit = {"image_size": 32, "patch_size": 8, "num_labels": 5, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}

    def module():
        import transformers
        return transformers

    def encoder(name):
        config = getattr(module(), name + "Config")(**small, embedding_size=16)
        return getattr(module(), name + "ForSequenceClassification")(config), tokens()

    def decoder(name, options):
        config = getattr(module(), name + "Config")(**small | options, use_cache=False, bos_token_id=1, eos_token_id=2)
        return (getattr(module(), name + "ForCausalLM", None) or getattr(module(), name + "LMHeadModel"))(config), tokens()

    def vision(name, options):
        config = getattr(module(), name + "Config")(**options)
        return getattr(module(), name + "ForImageClassification")(config), image(options.get("image_size", 64))

    def translation(name, options):
        config = getattr(module(), name + "Config")(vocab_size=50, d_model=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                                    decoder_start_token_id=1, use_cache=False, **options)
        return getattr(module(), name + "ForConditionalGeneration")(config), {"input_ids": tokens(), "decoder_input_ids": tokens(6)}
    ends = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32, "max_position_embeddings": 64}
    t5 = {"d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    encoders = """Bert Roberta Electra Albert MPNet RoFormer Ernie MegatronBert SqueezeBert ConvBert Deberta DebertaV2 Camembert XLMRoberta LayoutLM
        FNet ModernBert MobileBert Nystromformer Yoso IBert RoCBert XLMRobertaXL Data2VecText RobertaPreLayerNorm""".split()
    decoders = {"GPT2": gpt, "GPTNeoX": {}, "Llama": {}, "Mistral": {"num_key_value_heads": 2}, "Qwen2": {"num_key_value_heads": 2},
                "Qwen3": {"head_dim": 8, "num_key_value_heads": 2}, "Phi": {}, "Falcon": {}, "StableLm": {},
                "OPT": {"ffn_dim": 32, "word_embed_proj_dim": 16}, "Bloom": {"n_layer": 2, "n_head": 2}, "Gemma": {"head_dim": 8, "num_key_value_heads": 2},
                "Gemma2": {"head_dim": 8, "num_key_value_heads": 2}, "CodeGen": gpt | {"rotary_dim": 4}, "GPTJ": gpt | {"rotary_dim": 4},
                "GPTBigCode": gpt, "Olmo": {}, "Cohere": {}, "Starcoder2": {}, "Granite": {}, "Mamba": {}, "XGLM": {"d_model": 16, "num_layers": 2,
                "attention_heads": 2, "ffn_dim": 32}}
    visions = {"ViT": vit, "DeiT": vit, "Beit": vit, "Dinov2": vit, "ViTMSN": vit, "Data2VecVision": vit,
               "Swin": {"image_size": 64, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "num_labels": 5},
               "Swinv2": {"image_size": 64, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "num_labels": 5},
               "ConvNext": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_labels": 5},
               "ConvNextV2": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_labels": 5},
               "ResNet": {"hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1], "embedding_size": 16, "num_labels": 5},
               "RegNet": {"hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1], "embedding_size": 16, "groups_width": 8, "num_labels": 5},
               "MobileNetV1": {"num_labels": 5}, "MobileNetV2": {"num_labels": 5}, "PoolFormer": {"num_labels": 5}, "PvtV2": {"num_labels": 5},
               "Segformer": {"num_labels": 5}, "FocalNet": {"image_size": 64, "embed_dim": 12, "depths": [1, 1], "num_labels": 5}}
    translations = {"T5": t5, "MT5": t5, "Bart": ends, "MBart": ends, "Marian": ends, "Pegasus": ends, "Blenderbot": ends, "PLBart": ends}
    return ([Architecture(name, lambda name=name: encoder(name)) for name in encoders]
            + [Architecture(name, lambda name=name, options=options: decoder(name, options)) for name, options in decoders.items()]
            + [Architecture(name, lambda name=name, options=options: vision(name, options)) for name, options in visions.items()]
            + [Architecture(name, lambda name=name, options=options: translation(name, options)) for name, options in translations.items()])


def monai():
    def nets():
        return importlib.import_module("monai.networks.nets")
    plane = {"spatial_dims": 2, "in_channels": 1, "out_channels": 3}
    space = plane | {"spatial_dims": 3}
    return [Architecture(name, build) for name, build in {
        "UNet": lambda: (nets().UNet(**plane, channels=(4, 8, 16), strides=(2, 2)), image(32, 1)),
        "UNet3d": lambda: (nets().UNet(**space, channels=(4, 8, 16), strides=(2, 2), num_res_units=1), volume(16)),
        "BasicUNet": lambda: (nets().BasicUNet(**plane, features=(4, 4, 8, 8, 8, 4)), image(32, 1)),
        "BasicUNetPlusPlus": lambda: (nets().BasicUNetPlusPlus(**plane, features=(4, 4, 8, 8, 8, 4)), image(32, 1)),
        "AttentionUnet": lambda: (nets().AttentionUnet(**plane, channels=(4, 8, 16), strides=(2, 2)), image(32, 1)),
        "DynUNet": lambda: (nets().DynUNet(**plane, kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2], filters=[4, 8, 8]), image(32, 1)),
        "SegResNet": lambda: (nets().SegResNet(**space, init_filters=8), volume(16)),
        "SegResNetVAE": lambda: (nets().SegResNetVAE((16, 16, 16), init_filters=8, vae_nz=8), volume(16)),
        "VNet": lambda: (nets().VNet(), volume(16)),
        "HighResNet": lambda: (nets().HighResNet(**plane), image(32, 1)),
        "DenseNet": lambda: (nets().DenseNet(**space, init_features=8, growth_rate=4, block_config=(2, 2)), volume(16)),
        "SENet": lambda: (nets().SEResNet50(spatial_dims=2, in_channels=1, num_classes=3), image(64, 1)),
        "ResNet": lambda: (nets().resnet10(spatial_dims=3, n_input_channels=1, num_classes=3), volume(16)),
        "EfficientNet": lambda: (nets().EfficientNetBN("efficientnet-b0", spatial_dims=2, in_channels=1, num_classes=3, pretrained=False), image(64, 1)),
        "ViT": lambda: (nets().ViT(1, 32, 8, hidden_size=16, mlp_dim=32, num_layers=2, num_heads=2, spatial_dims=2), image(32, 1)),
        "UNETR": lambda: (nets().UNETR(1, 3, 32, feature_size=4, hidden_size=16, mlp_dim=32, num_heads=2, spatial_dims=2), image(32, 1)),
        "SwinUNETR": lambda: (nets().SwinUNETR(1, 3, feature_size=12, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2), spatial_dims=2), image(64, 1)),
        "AutoEncoder": lambda: (nets().AutoEncoder(**plane | {"out_channels": 1}, channels=(4, 8), strides=(2, 2)), image(32, 1)),
        "VarAutoEncoder": lambda: (nets().VarAutoEncoder(2, (1, 32, 32), 1, 4, channels=(4, 8), strides=(2, 2)), image(32, 1)),
        "VQVAE": lambda: (nets().VQVAE(2, 1, 1, channels=(4, 8), num_res_layers=1, num_res_channels=(4, 8), num_embeddings=8,
                                       embedding_dim=4, downsample_parameters=((2, 4, 1, 1),) * 2,
                                       upsample_parameters=((2, 4, 1, 1, 0),) * 2), image(32, 1)),
        "MedNeXt": lambda: (nets().MedNeXt(2, 4, 1, 3), image(32, 1)),
        "Restormer": lambda: (importlib.import_module("monai.networks.nets.restormer").Restormer(2, 1, 1, dim=8, num_blocks=(1, 1), heads=(1, 1)),
                              image(32, 1)),
        "Regressor": lambda: (nets().Regressor((1, 32, 32), (2,), channels=(4, 8), strides=(2, 2)), image(32, 1)),
        "Discriminator": lambda: (nets().Discriminator((1, 32, 32), channels=(4, 8), strides=(2, 2)), image(32, 1)),
        "AHNet": lambda: (nets().AHNet(spatial_dims=2, upsample_mode="bilinear"), image(128, 1)),
    }.items()]


def vit_pytorch():
    def build(module, name, size=32, **options):
        return getattr(importlib.import_module(f"vit_pytorch.{module}"), name)(**options), image(size)
    small = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}
    one = {key: small[key] for key in ("image_size", "patch_size", "num_classes", "dim", "depth", "heads", "mlp_dim")}
    models = [("vit", "ViT", one | {"dropout": 0.1}), ("simple_vit", "SimpleViT", one), ("deepvit", "DeepViT", one),
              ("cait", "CaiT", one | {"cls_depth": 1}), ("parallel_vit", "ViT", one), ("vit_for_small_dataset", "ViT", one),
              ("vit_with_patch_merger", "ViT", one | {"depth": 4, "patch_merge_layer": 2}), ("simple_vit_with_qk_norm", "SimpleViT", one),
              ("simple_vit_with_register_tokens", "SimpleViT", one), ("simple_vit_with_fft", "SimpleViT", one | {"freq_patch_size": 8}),
              ("learnable_memory_vit", "ViT", one), ("rvt", "RvT", one), ("normalized_vit", "nViT", one),
              ("simple_vit_with_value_residual", "SimpleViT", one), ("vit_with_decorr", "ViT", one), ("cct", "CCT", {
                  "img_size": 32, "embedding_dim": 16, "n_conv_layers": 1, "kernel_size": 3, "stride": 2, "padding": 1, "pooling_kernel_size": 3,
                  "pooling_stride": 2, "pooling_padding": 1, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2, "num_classes": 5,
                  "positional_embedding": "learnable"}),
              ("scalable_vit", "ScalableViT", {"num_classes": 5, "dim": 16, "heads": (2, 2), "depth": (1, 1), "ssa_dim_key": (8, 8),
                                               "reduction_factor": (2, 1), "window_size": (4, None)}),
              ("nest", "NesT", {"image_size": 32, "patch_size": 4, "dim": 16, "heads": 2, "num_hierarchies": 2, "block_repeats": (1, 1), "num_classes": 5}),
              ("xcit", "XCiT", one | {"cls_depth": 1}), ("levit", "LeViT", {"image_size": 64, "num_classes": 5, "stages": 2, "dim": (16, 32),
                                                                          "depth": 1, "heads": (2, 2), "mlp_mult": 2}),
              ("vit_with_patch_dropout", "ViT", one)]
    return [Architecture(f"{module}.{name}", lambda module=module, name=name, options=options: build(
        module, name, options.get("image_size", options.get("img_size", 32)), **options)) for module, name, options in models]


def segmentation_models_pytorch():
    def build(name):
        package = importlib.import_module("segmentation_models_pytorch")
        return getattr(package, name)("resnet18", encoder_weights=None, classes=3), image(128 if name == "PAN" else 64)
    return [Architecture(name, lambda name=name: build(name)) for name in
            "Unet UnetPlusPlus MAnet Linknet FPN PSPNet PAN DeepLabV3 DeepLabV3Plus UPerNet Segformer".split()]


def diffusers():
    def package():
        return importlib.import_module("diffusers")

    def timed(model, images, **more):
        import torch
        return model, {"sample": images, "timestep": torch.randint(0, 100, (ROWS,))} | more

    def conditional():
        import torch
        model = package().UNet2DConditionModel(sample_size=16, block_out_channels=(8, 16), layers_per_block=1, cross_attention_dim=8, norm_num_groups=4,
                                               attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                               up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
        return timed(model, image(16, 4), encoder_hidden_states=torch.randn(ROWS, 5, 8))
    return [Architecture(name, build) for name, build in {
        "UNet2DModel": lambda: timed(package().UNet2DModel(sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
                                                           down_block_types=("DownBlock2D", "AttnDownBlock2D"), attention_head_dim=4,
                                                           up_block_types=("AttnUpBlock2D", "UpBlock2D")), image(16)),
        "UNet2DConditionModel": conditional,
        "AutoencoderKL": lambda: (package().AutoencoderKL(block_out_channels=(8,), norm_num_groups=4), image(16)),
        "VQModel": lambda: (package().VQModel(block_out_channels=(8,), norm_num_groups=4, num_vq_embeddings=8), image(16)),
        "AutoencoderTiny": lambda: (package().AutoencoderTiny(encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
                                                              num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)), image(16)),
    }.items()]


def neuraloperator():
    def models():
        module = importlib.import_module("neuralop.models")
        importlib.import_module("tensorly.plugins").use_default_einsum()  # opt_einsum takes sizes as numbers, which fixes the batch
        return module
    small = {"in_channels": 1, "out_channels": 1, "hidden_channels": 8, "n_layers": 2}
    return [Architecture(name, build) for name, build in {
        "FNO1d": lambda: (models().FNO(n_modes=(4,), **small), image(16, 1)[:, :, 0]),
        "FNO": lambda: (models().FNO(n_modes=(4, 4), **small), image(16, 1)),
        "FNO3d": lambda: (models().FNO(n_modes=(4, 4, 4), **small), volume(8)),
        "TFNO": lambda: (models().TFNO(n_modes=(4, 4), rank=0.5, **small), image(16, 1)),
        "UNO": lambda: (models().UNO(1, 1, hidden_channels=8, channel_mlp_skip="linear", uno_out_channels=[8, 8], uno_n_modes=[[4, 4], [4, 4]],
                                     uno_scalings=[[1.0, 1.0], [1.0, 1.0]], n_layers=2), image(16, 1)),
    }.items()]


def tables():
    """Models of rows with 6 numbers, from three packages."""
    import torch

    def numbers():
        return torch.randn(ROWS, 6)

    def rtdl(name, **options):
        return getattr(importlib.import_module("rtdl_revisiting_models"), name)(**options)
    return [Architecture(name, build) for name, build in {
        "rtdl.MLP": lambda: (rtdl("MLP", d_in=6, d_out=3, n_blocks=2, d_block=16, dropout=0.1), numbers()),
        "rtdl.ResNet": lambda: (rtdl("ResNet", d_in=6, d_out=3, n_blocks=2, d_block=16, d_hidden=None, d_hidden_multiplier=2.0, dropout1=0.1,
                                     dropout2=0.0), numbers()),
        "rtdl.FTTransformer": lambda: (rtdl("FTTransformer", n_cont_features=6, cat_cardinalities=[5, 4], d_out=3, n_blocks=2, d_block=16,
                                            attention_n_heads=2, attention_dropout=0.1, ffn_d_hidden=None, ffn_d_hidden_multiplier=2.0, ffn_dropout=0.1,
                                            residual_dropout=0.0), (numbers(), torch.randint(0, 4, (ROWS, 2)))),
        "tabm.TabM": lambda: (importlib.import_module("tabm").TabM.make(n_num_features=6, d_out=3, n_blocks=2, d_block=16, k=4), numbers()),
    }.items()]


def graphs():
    """Networks of torch_geometric on dense adjacency matrices."""
    import torch

    class Dense(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.first, self.second = layer(4, 8), layer(8, 3)

        def forward(self, nodes, edges):
            return self.second(torch.relu(self.first(nodes, edges)), edges)

    def build(name):
        module = importlib.import_module("torch_geometric.nn")
        edges = (torch.rand(ROWS, 6, 6) > 0.5).float()
        layers = {"DenseGINConv": lambda width, out: module.DenseGINConv(torch.nn.Linear(width, out))}
        return Dense(layers.get(name, getattr(module, name))), (torch.randn(ROWS, 6, 4), edges)
    return [Architecture(name, lambda name=name: build(name)) for name in
            "DenseGCNConv DenseSAGEConv DenseGraphConv DenseGINConv DenseGATConv".split()]


def x_transformers():
    def package():
        return importlib.import_module("x_transformers")

    def decoder(**options):
        return package().TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=package().Decoder(dim=16, depth=2, heads=2, **options)), tokens()
    options = {"plain": {}, "rotary": {"rotary_pos_emb": True}, "alibi": {"alibi_pos_bias": True}, "t5_bias": {"rel_pos_bias": True},
               "swiglu": {"ff_glu": True, "ff_swish": True}, "rmsnorm": {"use_rmsnorm": True}, "qk_norm": {"attn_qk_norm": True},
               "kv_heads": {"attn_kv_heads": 1}, "sandwich": {"sandwich_norm": True}, "talking_heads": {"attn_pre_talking_heads": True},
               "macaron": {"macaron": True}, "memory": {"attn_num_mem_kv": 2}}
    return [Architecture(name, lambda chosen=chosen: decoder(**chosen)) for name, chosen in options.items()]


PACKAGES = [timm, torchvision, transformers, monai, vit_pytorch, segmentation_models_pytorch, diffusers, neuraloperator, tables, graphs, x_transformers]
