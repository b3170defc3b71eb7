package main

import (
	"image/color"
	"math"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	background  = 0xf4f5f5
	ink         = 0x24292e
	faint       = 0x6a737d
	gridline    = 0xe1e4e8
	good        = 0x2c7a3f
	fillOpacity = 0.8

	plain = xfont.WeightNormal
	bold  = xfont.WeightBold
)

// colors are the colors of well-known series: on-demand is blue, spot is green, and floor replicas
// on spot are red.
var colors = map[string]uint32{
	"on-demand, floor": 0x1f4e9c, "spot, floor": 0xd1242f, "on-demand, beyond-floor": 0x84b1ed, "spot, beyond-floor": 0x57a55a,
	"on-demand, label": 0x1f4e9c, "spot, label": 0x57a55a,
	"replicas missing on on-demand": 0xd1242f, "pods waiting for on-demand": 0xe0912f,
}

// palette has the colors of all other series.
var palette = []uint32{0x8250df, 0x57a55a, 0xe0912f, 0x1f4e9c, 0xd1242f, 0x6a737d}

// paint returns a web color with this opacity.
func paint(shade uint32, opacity float64) color.Color {
	return color.NRGBA{R: uint8(shade >> 16), G: uint8(shade >> 8), B: uint8(shade), A: uint8(math.Round(255 * opacity))}
}

// fill fills a canvas.
func fill(on draw.Canvas, with color.Color) {
	on.SetColor(with)
	on.Fill(on.Rectangle.Path())
}

// write writes one line of text, whose base line starts at x and y.
func write(on draw.Canvas, x, y, size vg.Length, weight xfont.Weight, shade uint32, text string) {
	on.SetColor(paint(shade, 1))
	on.FillString(*face(size, weight), vg.Point{X: x, Y: y}, text)
}

// face returns the font face for measuring text.
func face(size vg.Length, weight xfont.Weight) *font.Face {
	f := font.DefaultCache.Lookup(sans(size, weight), size)
	return &f
}

func sans(size vg.Length, weight xfont.Weight) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight, Size: size}
}
