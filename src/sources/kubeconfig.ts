/**
 * Who asks a Kubernetes cluster, and how: certificates, tokens, exec plugins, the pod's own account. Of the 64 MB of Kubernetes's client
 * nothing else is used, so the package has only this file's part of it (`ops/bundle-kubeconfig.ts`).
 */
// biome-ignore lint/correctness/noUndeclaredDependencies: the package has it inside
export { type Cluster, KubeConfig, type User } from '@kubernetes/client-node'
