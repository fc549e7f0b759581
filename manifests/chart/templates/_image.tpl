{{- /* The image, by digest if there is one. */}}
{{- define "spotgate.image" -}}
{{- $repository := required "image.repository names no image: --set image.repository=registry.example.com/spotgate,image.digest=sha256:... (docs/install.md)" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
