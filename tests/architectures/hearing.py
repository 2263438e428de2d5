"""The exceptions among types that listen."""

from functools import partial
from typing import Any

import torch

from tests.architectures import sounds
from tests.architectures.mixed import DECODED, Media, mixed_inputs, words
from tests.architectures.special import CROSSING, Special, for_types
from tests.architectures.text import LENGTH, SEQUENCES, padding_mask


def _hear(how: Media, **more: Any) -> Any:
    """Inputs whose sounds are made another way."""
    return partial(mixed_inputs, hear=how, **more)


def _coded(model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Any]:
    """Text for an encoder or before the codes, and a row of codes for every token of a decoder of audio."""
    inputs = mixed_inputs(model, config, seed, padded=padded)
    name, width = "input_ids", config.num_codebooks + 1 if hasattr(config, "num_codebooks") else 0
    if not width:
        name, width = "decoder_input_ids", config.decoder_config.num_channels
    columns = [inputs[name].roll(each, dims=1) for each in range(width)]
    return inputs | {name: torch.stack(columns, dim=-1)}  # (sequence, pos, code)


def _embedded(_model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Any]:
    """A sound that comes as one vector a position, and the tokens of a decoder."""
    generator = torch.Generator().manual_seed(seed + 3)
    vectors = torch.randn(SEQUENCES, LENGTH, config.hidden_size, generator=generator)
    inputs = {"input_features": vectors, "decoder_input_ids": words(seed + 5, DECODED)}
    return inputs | {"attention_mask": padding_mask(SEQUENCES)} if padded else inputs


def _mel(_model: Any, config: Any, seed: int, *, padded: bool) -> dict[str, Any]:
    """Spectra under a name of their own, the second ending early."""
    generator = torch.Generator().manual_seed(seed + 3)
    silent = torch.zeros(SEQUENCES, sounds.FRAMES, dtype=torch.bool)
    silent[1, 48:] = padded
    shape = (SEQUENCES, sounds.FRAMES, config.input_feat_size)
    return {"audio_mel": torch.randn(shape, generator=generator), "audio_mel_mask": silent}


def _whole(model: Any, config: Any, seed: int, *, hear: Media = sounds.sounds, **_padded: bool) -> dict[str, Any]:
    """Sounds of one length, none of it padding."""
    return mixed_inputs(model, config, seed, padded=False, hear=hear)


# Their eager attention does not repeat keys for the query heads that share them.
_NOT_SHARED = {"num_key_value_heads": 4}
_CODEC = {"upsample_groups": 64, "num_filters": 8}
_VIBEVOICE = {"num_filters": 16, "downsampling_ratios": [8, 8], "depths": [1, 1, 1]}

HEARING: dict[str, Special] = {
    # what they hear
    **for_types(
        "canary",
        "cohere_asr",
        "lasr_ctc",
        "lasr_encoder",
        "nemotron_asr_streaming_encoder",
        "parakeet_ctc",
        "parakeet_encoder",
        inputs=_hear(sounds.frames),
    ),
    "wav2vec2-bert": Special({"feature_projection_input_dim": 16}, inputs=_hear(sounds.frames)),
    "gemma4_audio": Special(inputs=_hear(partial(sounds.frames, n_bands=128))),
    "audio-spectrogram-transformer": Special({"max_length": sounds.FRAMES}, inputs=partial(_whole, hear=sounds.values)),
    # These hand a mask on as it is, for a kernel and not for a caller.
    **for_types(
        "moss_transcribe_diarize_audio",
        "qwen2_audio_encoder",
        "voxtral_encoder",
        "voxtral_realtime_encoder",
        inputs=_whole,
    ),
    **for_types(
        "nemotron3_5_transcribe_asr_audio",
        "nemotron3_diarization_audio",
        fields=_NOT_SHARED,
        inputs=_hear(sounds.frames),
    ),
    **for_types(
        "granite_speech5_ctc",
        "granite_speech5_encoder",
        fields=_NOT_SHARED,
        inputs=_hear(partial(sounds.frames, n_bands=64)),
    ),
    **for_types("omniasr_audio", "omniasr_ctc", "pe_audio", "pe_audio_encoder", inputs=_hear(sounds.channel)),
    "qwen3_asr_encoder": Special({"n_window_infer": 100}, inputs=_hear(partial(sounds.long, n_frames=200))),
    "fun_asr_nano_encoder": Special({"num_stacked_frames": 1}, inputs=_hear(sounds.frames)),
    **for_types(
        "mimi_encoder",
        "pocket_tts_audio_tokenizer_encoder",
        fields=_CODEC,
        inputs=_hear(sounds.channel),
        call={"use_cache": None},  # it hands on its configuration's as well
    ),
    "gemma3n_audio": Special(inputs=_mel),
    **for_types("pe_audio_video_encoder", why="its images go through timm, which this project does not install"),
    "vibevoice_acoustic_tokenizer_encoder": Special(_VIBEVOICE, inputs=_hear(sounds.waves_inside)),
    "vibevoice_acoustic_tokenizer": Special(_VIBEVOICE),
    "wavtokenizer_encoder": Special(why="it puts out codes, which are no numbers to look at; it has no attention"),
    "nemotron3_5_transcribe_audio": Special(
        {"diarization_config.head_config.audio_hidden_size": 64}, inputs=_hear(sounds.frames)
    ),
    **for_types(
        "granite_speech",
        "granite_speech_plus",
        fields={"window_size": 6, "downsample_rate": 2},
        inputs=_hear(sounds.frames_alone),
    ),
    "speech_to_text": Special({"input_feat_per_channel": 16}, inputs=_hear(sounds.frames)),
    "speech-encoder-decoder": Special(CROSSING, inputs=_hear(sounds.waves)),
    "omniasr": Special(inputs=_hear(sounds.channel)),
    "voxtral_realtime": Special(inputs=_hear(partial(sounds.long, n_frames=192))),
    "moss_transcribe_diarize/seq2seq": Special(inputs=_hear(sounds.unpadded)),
    "musicflamingo": Special(inputs=partial(mixed_inputs, rows=16)),
    "qwen2_audio": Special(inputs=partial(mixed_inputs, rows=16)),
    "voxtral": Special({"audio_token_id": 9}),
    "qwen3_asr": Special({"audio_config.n_window_infer": 100}, inputs=_hear(partial(sounds.long, n_frames=200))),
    **for_types("vibevoice", "vibevoice_asr", inputs=_hear(sounds.unpadded_channel)),
    "nemotron3_5_transcribe_word_timestamp": Special(_NOT_SHARED),
    "dia": Special(inputs=_coded),
    "kyutai_speech_to_text": Special(
        {"codec_config.upsample_groups": 64, "codec_config.num_filters": 8}, inputs=_coded
    ),
    "pop2piano": Special(inputs=_embedded),
    # how they are made
    "fun_asr_nano": Special(
        {"adaptor_config.intermediate_size": 16, "audio_config.num_stacked_frames": 1}, inputs=_hear(sounds.frames)
    ),
    "moonshine": Special({"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4}),
    "moonshine_streaming": Special({"num_key_value_heads": 4}),
    "nemo_speechlm": Special(
        {"audio_config.diarization_config.head_config.audio_hidden_size": 64}, inputs=_hear(sounds.frames)
    ),
}
