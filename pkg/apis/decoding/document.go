package decoding

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// OneDocument returns an error if data has a YAML document after the first, because decoders ignore
// it. Empty documents at the end are allowed. Errors in the first document are left to the decoder.
func OneDocument(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for first := true; ; first = false {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case first && err == nil:
		case first || errors.Is(err, io.EOF):
			return nil
		case err != nil || document.Content[0].Tag != "!!null":
			return fmt.Errorf("expected one YAML document: the document at line %d would be ignored, or the one before it is empty", document.Line)
		}
	}
}
