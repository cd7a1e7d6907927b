"""How results are shown: each as a document, and one presenter that writes any document as JSON, tables or HTML."""
