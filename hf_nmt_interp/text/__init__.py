"""Text: tokens, words, parallel corpora, CoNLL-U trees and Pharaoh links."""
