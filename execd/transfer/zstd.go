package main

import (
	"sync"

	"github.com/klauspost/compress/zstd"

	"paddock/execd/internal/sandbox/pack"
)

// A block is compressed by itself, so that one may be lost, or be what a stream goes on with. Few
// processes have use for either of these, which take memory.
var (
	zipper = sync.OnceValue(func() *zstd.Encoder {
		return sure(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(pack.MaxBlock), zstd.WithEncoderCRC(false)))
	})
	unzipper = sync.OnceValue(func() *zstd.Decoder {
		return sure(zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(pack.MaxBlock), zstd.WithDecoderMaxWindow(pack.MaxBlock), zstd.WithDecodeAllCapLimit(true)))
	})
)

// sure returns what cannot fail with options that never change.
func sure[T any](of T, err error) T {
	if err != nil {
		panic(err)
	}
	return of
}

// zip appends a block to a buffer, compressed. What does not compress is passed over within some
// microseconds.
func zip(to, block []byte) []byte { return zipper().EncodeAll(block, to) }

// unzip undoes zip in the room that a buffer has. What is not to be there it refuses.
func unzip(to, zip []byte) ([]byte, error) { return unzipper().DecodeAll(zip, to) }
